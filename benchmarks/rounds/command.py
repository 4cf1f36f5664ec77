"""Runs the works of a suite: each side of a work once in every round, in turns.

Each run is a new process; the environment variable HOLDFAST_ENGINE chooses Holdfast's engine. Which
side of a work is first alternates from round to round. A program that finds its own result wrong
ends with an error, and has no figures.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.console import HOME, ROOT, Progress, add_json_option, names, note, warn_if_busy
from benchmarks.environments import ENVIRONMENTS, EnvironmentFailed, prepare
from benchmarks.pictures.command import draw_results
from benchmarks.report import as_json, write_json
from benchmarks.rounds.suite import Side, Suite, Work
from benchmarks.rounds.table import Rounds, lines_of, render
from benchmarks.runner import Result, Settings, last_lines, records_for, run_program
from benchmarks.workloads import Workload
from holdfast.common.options.engine import ENGINE_VARIABLE

__all__ = ["parse", "run", "size_of", "turns"]


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above zero")
    return value


def parse(suite: Suite, arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {suite.name}", description=suite.description
    )
    parser.add_argument(
        "parts",
        nargs="*",
        type=names(suite.parts, "part"),
        metavar="PART",
        help=f"what to run, of {', '.join(suite.parts)}; all unless given",
    )
    parser.add_argument(
        "--full", action="store_true", help="sizes for figures that count; they take hours"
    )
    parser.add_argument(
        "--size", type=_count, metavar="N", help="records, keys, events or epochs of each work"
    )
    parser.add_argument(
        "--seconds", type=_count, metavar="N", help="the length of works that have one"
    )
    parser.add_argument(
        "--rounds",
        type=_count,
        default=1,
        metavar="N",
        help="runs of each side of a work; 1 unless given. Even numbers favour neither",
    )
    parser.add_argument(
        "--only",
        type=names(list(suite.works), "work"),
        metavar="A,B",
        help=f"single works instead of parts, of {', '.join(suite.works)}",
    )
    parser.add_argument("--no-peers", action="store_true", help="run Holdfast alone")
    add_json_option(parser, suite.name)
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bar is not reached")
    parser.add_argument("--list", action="store_true", help="show what there is to run, and end")
    options = parser.parse_args(arguments)
    # NB: each argument is a list, since names may stand between commas
    parts = [name for given in options.parts for name in given] or suite.parts
    options.works = [
        work
        for work in suite.works.values()
        if (work.name in options.only if options.only else work.part in parts)
    ]
    return options


def size_of(work: Work, options: argparse.Namespace) -> int:
    """Return how much of a work to run."""
    given = options.seconds if work.unit == "seconds" else options.size
    size: int = given or (work.full if options.full else work.size)
    return size


def turns(work: Work, number: int, peers: bool) -> list[Side]:
    """Return who runs in a round, in their order, which alternates."""
    sides = [side for side in work.sides if side.engine or peers]
    return sides[::-1] if number % 2 else sides


def run(suite: Suite, arguments: Sequence[str]) -> int:
    """Run the command of a suite and return its exit code."""
    options = parse(suite, arguments)
    if options.list:
        _show(options)
        return 0
    load = os.getloadavg()[0]
    warn_if_busy(load)
    (HOME / suite.name).mkdir(parents=True, exist_ok=True)
    rounds: dict[str, list[dict[str, Result]]] = {work.name: [] for work in options.works}
    try:
        for work, results in _runs(suite, options):
            rounds[work].append(results)
            # Written after each, so that an interrupted run leaves what it has.
            write_json(options.json, _as_json(suite, options, load, rounds))
    except KeyboardInterrupt:
        note("interrupted")
    lines = lines_of(suite.rows, rounds)
    print(
        f"load average: {load:.1f}, rounds: {options.rounds}\n\n{render(lines, suite.works)}\n",
        flush=True,
    )
    failures = list(_failures(suite, rounds))
    for _, text in failures:
        print(text, flush=True)
    print(f"written to {options.json}", file=sys.stderr)
    if options.json.exists():
        draw_results(options.json)
    missed = any(line.outcome not in ("", "pass") for line in lines)
    # a peer that cannot be run here is told, but no failure of Holdfast's
    return int(any(own for own, _ in failures) or (options.strict and missed))


def _runs(suite: Suite, options: argparse.Namespace) -> Iterable[tuple[str, dict[str, Result]]]:
    """Run all rounds; each goes through all works."""
    for number in range(options.rounds):
        for work in options.works:
            sides = turns(work, number, not options.no_peers)
            label = f"[{number + 1}/{options.rounds}] {work.name}"
            yield work.name, {side.name: _run(suite, work, side, label, options) for side in sides}


def _run(suite: Suite, work: Work, side: Side, label: str, options: argparse.Namespace) -> Result:
    size = size_of(work, options)
    # the programs know the works by names without hyphens
    name = work.name.replace("-", "_")
    workload = Workload(name, size, size, (side.name,), timeout=work.timeout)
    variables = {ENGINE_VARIABLE: side.engine} if side.engine else {}
    settings = Settings(ROOT, HOME / suite.name, variables=variables)
    count = records_for(workload, side.program, settings)
    progress = Progress(f"{label}, {side.name}, {count:,} {work.unit}")
    python = Path(sys.executable)
    try:
        if side.program.environment is not None:
            environment = ENVIRONMENTS[side.program.environment]
            python = prepare(environment, HOME / "venvs", progress.say)
        progress.start()
        result = run_program(python, side.program, workload, settings, progress.tick)
    except EnvironmentFailed as error:
        result = Result(work.name, side.name, count, failure=str(error))
    progress.end(result.failure or "done")
    if result.failure and side.engine:
        print("".join(f"  {line}\n" for line in last_lines(settings)), end="", file=sys.stderr)
    return result


def _failures(suite: Suite, rounds: Rounds) -> Iterable[tuple[bool, str]]:
    """Yield whether it is Holdfast's, and a line about it."""
    for work, results in rounds.items():
        for number, sides in enumerate(results, 1):
            for name, result in sides.items():
                if result.failure:
                    own = next(side for side in suite.works[work].sides if side.name == name).engine
                    yield bool(own), f"{work}, {name}, round {number}: {result.failure}"


def _show(options: argparse.Namespace) -> None:
    for work in options.works:
        sides = ", ".join(side.name for side in turns(work, 0, not options.no_peers))
        size = f"{size_of(work, options):,} {work.unit}"
        print(f"{work.part:14} {work.name:20} {size:>20}  {sides}")


def _as_json(
    suite: Suite, options: argparse.Namespace, load: float, rounds: Rounds
) -> dict[str, Any]:
    lines = lines_of(suite.rows, rounds)
    about = as_json([], [], Settings(ROOT, HOME, load=load))
    return {
        **{name: about[name] for name in ("date", "commit", "machine")},
        "sizes": {work.name: size_of(work, options) for work in options.works},
        "rounds": {
            work: [{name: asdict(each) for name, each in sides.items()} for sides in results]
            for work, results in rounds.items()
        },
        "table": [asdict(line) for line in lines],
    }
