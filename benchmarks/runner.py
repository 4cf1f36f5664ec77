"""Runs one program in a process of its own and reads what it measured."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import PYTHON, STARTED, Measurement
from benchmarks.memory import memory_of
from benchmarks.workloads import Program, Workload

__all__ = ["Result", "Settings", "last_lines", "records_for", "run_program"]


@dataclass(frozen=True)
class Settings:
    """What holds for every program of a run."""

    #: The project's directory.
    root: Path
    #: Where environments, scratch data and results go.
    home: Path
    quick: bool = False
    #: The number of records of the fastest systems, if not the workload's own.
    records: int | None = None
    #: Seconds between two snapshots of the state.
    checkpoint: int = 1
    #: The load average before the run: what else kept the machine busy.
    load: float = 0.0
    #: Whether to measure the memory of the workers, about once a second. It costs a little time.
    memory: bool = False
    #: Environment variables of the programs, besides those that there are.
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What became of one program: a measurement, or a failure in a line."""

    workload: str
    program: str
    records: int
    measurement: Measurement | None = None
    failure: str = ""
    #: The most resident memory that all workers together had, in MB, if it was measured.
    workers_mb: float = 0.0


def records_for(workload: Workload, program: Program, settings: Settings) -> int:
    """Return how many records a program gets: its share."""
    if workload.unit == "epochs":
        return workload.quick if settings.quick else workload.records
    base = settings.records or (workload.quick if settings.quick else workload.records)
    return max(1, round(base * program.share))


def run_program(
    python: Path,
    program: Program,
    workload: Workload,
    settings: Settings,
    tick: Callable[[float], None],
) -> Result:
    """Run a program to its end, or to its time-out.

    Args:
        python: The interpreter of its environment.
        program: What to run.
        workload: What to run it on.
        settings: How.
        tick: Is told the seconds since the start, about once a second.
    """
    records = records_for(workload, program, settings)
    directory = settings.home / "runs" / f"{workload.name}-{program.name}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command = [str(python), "-m", program.module, workload.name, "--records", str(records)]
    command += ["--checkpoint", str(settings.checkpoint), "--directory", str(directory)]
    if program.variant:
        command += ["--variant", program.variant]
    out, err = settings.home / "stdout.txt", settings.home / "stderr.txt"
    seen = [0.0]

    def watch(process: int, seconds: float) -> None:
        if settings.memory:
            seen.append(memory_of(process).workers)
        tick(seconds)

    try:
        code = _run(command, workload.timeout, settings, out, err, watch)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    measurement = _measurement(out)
    if measurement is not None:
        return Result(workload.name, program.name, records, measurement, workers_mb=max(seen))
    failure = f"stopped after {workload.timeout:.0f} s" if code is None else _failure(err, code)
    return Result(workload.name, program.name, records, failure=failure)


def _run(
    command: list[str],
    timeout: float,
    settings: Settings,
    out: Path,
    err: Path,
    watch: Callable[[int, float], None],
) -> int | None:
    """Run a command and return its exit code, or None when it took too long.

    ``watch`` is called about once a second with the process id and the seconds since the start.
    """
    started = time.time()
    # What is measured is the Holdfast beside these benchmarks, wherever another is installed.
    path = os.pathsep.join([str(settings.root), str(settings.root / "src")])
    environment = {
        **os.environ,
        **settings.variables,
        "PYTHONPATH": path,
        PYTHON: sys.executable,
        STARTED: str(started),
    }
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=settings.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            while time.time() - started < timeout:
                try:
                    return process.wait(1)
                except subprocess.TimeoutExpired:
                    watch(process.pid, time.time() - started)
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what the program leaves behind: its session is the process group of that id."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        process.wait()


def _measurement(out: Path) -> Measurement | None:
    for line in reversed(out.read_text("utf-8", errors="replace").splitlines()):
        if line.startswith('{"measurement"'):
            return Measurement.of(json.loads(line)["measurement"])
    return None


def _failure(err: Path, code: int) -> str:
    """Return the line of the error output that most likely says what happened."""
    lines = [line.strip() for line in err.read_text("utf-8", errors="replace").splitlines()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    errors = [line for line in lines if "Error" in line.split(":")[0] or "Exception:" in line]
    said = (causes or errors or [line for line in lines if line] or ["no message"])[-1]
    return f"exit code {code}: {said[:160]}"


def last_lines(settings: Settings, count: int = 10) -> list[str]:
    """Return the end of what the last program wrote to its error output."""
    text = (settings.home / "stderr.txt").read_text("utf-8", errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
