"""The command: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import compare
from benchmarks.console import HOME, ROOT, Progress, add_json_option, names, warn_if_busy
from benchmarks.engines import command as engines
from benchmarks.environments import ENVIRONMENTS, EnvironmentFailed, prepare
from benchmarks.large import command as large
from benchmarks.peers import command as peers
from benchmarks.pictures import command as pictures
from benchmarks.report import as_json, judge, render, write_json
from benchmarks.runner import Result, Settings, records_for, run_program
from benchmarks.scale import command as scale
from benchmarks.workloads import BARS, PROGRAMS, WORKLOADS, Program, Workload

__all__ = ["main", "parse", "selected"]

_COMMANDS = {
    "compare": compare,
    "draw": pictures,
    "engines": engines,
    "large": large,
    "peers": peers,
    "scale": scale,
}


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Runs the same work on Holdfast and on its peers and compares their rates.",
        epilog="'python -m benchmarks compare' compares two checkouts of Holdfast, 'python -m "
        "benchmarks engines' its two engines, 'python -m benchmarks peers' it with its peers in "
        "turns, and prints the bars, 'python -m benchmarks scale' the driver with many "
        "slots, 'python -m benchmarks large' large state on two hosts, 'python -m benchmarks draw' "
        "draws what was measured; see their --help.",
    )
    parser.add_argument(
        "workloads",
        nargs="?",
        type=names(list(WORKLOADS), "workload"),
        metavar="A,B",
        help="the same as --only",
    )
    parser.add_argument(
        "--only",
        type=names(list(WORKLOADS), "workload"),
        metavar="A,B",
        default=list(WORKLOADS),
        help="workloads to run; all unless given",
    )
    parser.add_argument(
        "--peers",
        type=names(list(PROGRAMS), "system"),
        metavar="A,B",
        default=list(PROGRAMS),
        help="systems to run, holdfast among them; all unless given",
    )
    parser.add_argument("--quick", action="store_true", help="few records: a test, no measurement")
    parser.add_argument(
        "--records",
        type=int,
        metavar="N",
        help="records for the fastest systems; the slow ones get their usual share of it",
    )
    parser.add_argument(
        "--checkpoint",
        type=int,
        metavar="SECONDS",
        default=1,
        help="time between two snapshots of the state, on every system that has such a setting; "
        "1 unless given",
    )
    add_json_option(parser, "results")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar is not reached")
    parser.add_argument("--list", action="store_true", help="show what there is to run, and end")
    options = parser.parse_args(arguments)
    options.only = options.workloads or options.only
    return options


def selected(only: Sequence[str], peers: Sequence[str]) -> list[tuple[Workload, Program]]:
    """Return what to run, in the order of the tables."""
    return [
        (workload, PROGRAMS[name])
        for workload in WORKLOADS.values()
        if workload.name in only
        for name in workload.programs
        if name in peers
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in _COMMANDS:
        return _COMMANDS[arguments[0]].main(arguments[1:])
    options = parse(arguments)
    load = os.getloadavg()[0]
    settings = Settings(ROOT, HOME, options.quick, options.records, options.checkpoint, load)
    chosen = selected(options.only, options.peers)
    if options.list:
        _show(chosen, settings)
        return 0
    HOME.mkdir(exist_ok=True)
    warn_if_busy(load)
    results = []
    for number, (workload, program) in enumerate(chosen, 1):
        results.append(_one(f"[{number}/{len(chosen)}]", workload, program, settings))
        # Written after each, so that an interrupted run leaves what it has.
        data = as_json(results, judge(results), settings)
        write_json(options.json, data)
    verdicts = judge(results)
    print(f"\n{render(results, verdicts)}\n", flush=True)
    print(json.dumps(as_json(results, verdicts, settings)))
    print(f"\nwritten to {options.json}", file=sys.stderr)
    pictures.draw_results(options.json)
    return int(options.strict and any(verdict.outcome != "pass" for verdict in verdicts))


def _show(chosen: Sequence[tuple[Workload, Program]], settings: Settings) -> None:
    for workload, program in chosen:
        count = f"{records_for(workload, program, settings):,} {workload.unit}"
        print(f"{workload.name:14} {program.name:16} {count:>18}")
    print()
    for bar in BARS:
        limit = f"≥ {bar.at_least:g}" if bar.at_least is not None else f"≤ {bar.at_most:g}"
        print(f"{bar.workload:14} {bar.text}: {limit}")


def _one(number: str, workload: Workload, program: Program, settings: Settings) -> Result:
    """Run one program, with a line about it on the error output."""
    records = records_for(workload, program, settings)
    progress = Progress(f"{number} {workload.name} on {program.name}, {records:,} {workload.unit}")
    python = Path(sys.executable)
    try:
        if program.environment is not None:
            environment = ENVIRONMENTS[program.environment]
            python = prepare(environment, settings.home / "venvs", progress.say)
        progress.start()
        result = run_program(python, program, workload, settings, progress.tick)
    except EnvironmentFailed as error:
        result = Result(workload.name, program.name, records, failure=str(error))
    progress.end(result.failure or _rate(result))
    return result


def _rate(result: Result) -> str:
    if result.measurement is None or not result.measurement.warm_rate:
        return "done"
    return f"{result.measurement.warm_rate:,.0f}/s after warm-up"
