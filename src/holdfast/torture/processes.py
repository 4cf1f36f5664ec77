"""The processes of a job on this machine, as ``ps`` shows them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

#: the modules that Spark forks workers from: PySpark's own, and that of Holdfast's sessions
#: NB: with the option, because the name alone is also in the settings of a JVM
_DAEMONS: Final = ("-m pyspark.daemon", "-m holdfast.spark.resident.daemon")
_SUBMIT: Final = "org.apache.spark.deploy.SparkSubmit"
_LOOP: Final = "holdfast.runtime.operators.sources.loop_process"


class Process(NamedTuple):
    """A process."""

    pid: int
    parent: int
    command: str


def processes() -> dict[int, Process]:
    """Return all processes that are alive, by pid."""
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=3) for line in listing.splitlines())
    alive = (row for row in rows if len(row) == 4 and not row[2].startswith("Z"))
    return {int(pid): Process(int(pid), int(parent), args) for pid, parent, _, args in alive}


def is_daemon(process: Process | None) -> bool:
    """Return whether it is the process that Spark forks workers from, or one of these workers."""
    return process is not None and any(name in process.command for name in _DAEMONS)


def workers_of(driver: int, alive: Mapping[int, Process]) -> list[int]:
    """Return the Python workers of a driver on this machine."""
    workers = (p for p in alive.values() if is_daemon(alive.get(p.parent)) and is_daemon(p))
    return sorted(p.pid for p in workers if _belongs(p, driver, alive))


def executors_of(driver: int, alive: Mapping[int, Process]) -> list[int]:
    """Return the executors that a driver has started on this machine."""
    executors = (p for p in alive.values() if " --executor-id " in p.command)
    return sorted(p.pid for p in executors if _belongs(p, driver, alive))


def jvms_of(driver: int, alive: Mapping[int, Process]) -> list[int]:
    """Return the JVM in which a driver runs Spark; none if Spark runs elsewhere."""
    return sorted(p.pid for p in alive.values() if p.parent == driver and _SUBMIT in p.command)


def family_of(ancestor: int, alive: Mapping[int, Process]) -> list[int]:
    """Return a process and all that descend from it; the process first."""
    descendants = (p for p in alive.values() if p.pid != ancestor)
    return [ancestor, *sorted(p.pid for p in descendants if _belongs(p, ancestor, alive))]


def loops_of(mark: str, alive: Mapping[int, Process]) -> list[int]:
    """Return the processes of source functions; ``mark`` begins their job's directory.

    NB: they are not descendants of the driver, because they outlive the worker that starts them.
    """
    return sorted(p.pid for p in alive.values() if f"{_LOOP} {mark}" in p.command)


def _belongs(process: Process, driver: int, alive: Mapping[int, Process]) -> bool:
    while process.parent in alive and process.pid != driver:
        process = alive[process.parent]
    return process.pid == driver
