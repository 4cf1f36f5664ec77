"""The command ``python -m benchmarks compare``: one checkout of Holdfast against another.

Each run is a fresh process with the source and the benchmark programs of its checkout, so that a
change of the API between the two does not matter. Both use the Python interpreter that runs the
command, and so the same packages. See `benchmarks.ratios` for what is made of the runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.console import HOME, ROOT, Progress, add_json_option, names, note, warn_if_busy
from benchmarks.ratios import Pair, Run, Side, order, render
from benchmarks.report import as_json, commit_of, figure_of, write_json
from benchmarks.runner import Settings, last_lines, records_for, run_program
from benchmarks.sources import differing
from benchmarks.workloads import NEXMARK_QUERIES, PROGRAMS, WORKLOADS, Program, Workload

__all__ = ["COMPARED", "Compared", "JobFailed", "compare", "main", "parse"]

#: What is compared unless told.
DEFAULT = ("keyed_count", "orders", "nexmark0", "nexmark5", "nexmark18")


@dataclass(frozen=True)
class Compared:
    """A workload that can be compared: what to run, and which of its figures is the rate."""

    name: str
    workload: Workload
    program: Program
    figure: str = "warm_rate"

    @property
    def path(self) -> str:
        """The file of the program in a checkout."""
        return f"{self.program.module.replace('.', '/')}.py"

    def settings(self, root: Path, options: argparse.Namespace) -> Settings:
        """Return how to run it in a checkout."""
        records = max(1, round(self.workload.records * options.scale))
        return Settings(root, HOME / "compare", records=records, memory=True)


def _query(name: str) -> Compared:
    """A query of NEXMark in a process of its own."""
    program = replace(PROGRAMS["nexmark-holdfast"], variant=name)
    return Compared(f"nexmark{name[1:]}", WORKLOADS["nexmark"], program, name)


COMPARED = {
    each.name: each
    for each in (
        *(
            Compared(name, WORKLOADS[name], PROGRAMS["holdfast"])
            for name in ("keyed_count", "word_count", "branches")
        ),
        Compared("orders", WORKLOADS["orders"], PROGRAMS["orders"]),
        *(
            Compared(
                f"rocksdb_{keys}", WORKLOADS["growth_rocksdb"], PROGRAMS[f"keys-{keys}-rocksdb"]
            )
            for keys in ("1m", "20m")
        ),
        *map(_query, NEXMARK_QUERIES),
    )
}


class JobFailed(Exception):
    """A run gave no rate: what happened in a line, and below it the end of its error output."""


def _checkout(text: str) -> Path:
    """Read the directory of a checkout."""
    directory = Path(text).resolve()
    for needed in ("src/holdfast/__init__.py", "benchmarks/__init__.py"):
        if not (directory / needed).is_file():
            raise argparse.ArgumentTypeError(
                f"{directory} is not a checkout of Holdfast: it has no {needed}"
            )
    return directory


def _positive(kind: type[int] | type[float]) -> Any:
    """Return an argparse type for a number above zero."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        # NB: written so that NaN is refused, too
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"'{text}' is not a number above zero")
        return value

    return read


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description="Alternates two checkouts of Holdfast and prints the ratios of their rates.",
    )
    parser.add_argument(
        "--before",
        type=_checkout,
        required=True,
        metavar="DIR",
        help="the checkout to divide by, for example from 'git worktree add DIR COMMIT'",
    )
    parser.add_argument(
        "--after",
        type=_checkout,
        default=ROOT,
        metavar="DIR",
        help="the checkout with the change; this one unless given",
    )
    parser.add_argument(
        "--only",
        type=names(list(COMPARED), "workload"),
        metavar="A,B",
        default=list(DEFAULT),
        help=f"workloads to run, of {', '.join(COMPARED)}; {','.join(DEFAULT)} unless given",
    )
    parser.add_argument(
        "--rounds",
        type=_positive(int),
        default=6,
        metavar="N",
        help="pairs of runs per workload; 6 unless given. Even numbers favour neither checkout",
    )
    parser.add_argument(
        "--scale",
        type=_positive(float),
        default=1.0,
        metavar="F",
        help="multiply the number of records by this; 1 unless given",
    )
    add_json_option(parser, "compare")
    options = parser.parse_args(arguments)
    options.only = list(dict.fromkeys(options.only))
    if not options.only:
        parser.error(f"--only names no workload; there are: {', '.join(COMPARED)}")
    for name in options.only:
        for directory in (options.before, options.after):
            if not (directory / COMPARED[name].path).is_file():
                missing = f"{directory} has no {COMPARED[name].path}"
                parser.error(f"{missing}: leave {name} out of --only")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(arguments)
    load = os.getloadavg()[0]
    title = "\n".join(f"{side}: {_label(getattr(options, side))}" for side in order(0))
    print(f"{title}\nload average: {load:.1f}", file=sys.stderr, flush=True)
    warn_if_busy(load)
    _warn_of_differences(options)
    (HOME / "compare").mkdir(parents=True, exist_ok=True)
    pairs: dict[str, list[Pair]] = {name: [] for name in options.only}
    failure = ""
    try:
        for name, pair in compare(options):
            pairs[name].append(pair)
            # Written after each, so that an interrupted run leaves what it has.
            write_json(options.json, _as_json(options, load, pairs))
    except JobFailed as error:
        failure = str(error)
    except KeyboardInterrupt:
        failure = "interrupted"
    if any(pairs.values()):
        print(f"{title}\nload average: {load:.1f}\n\n{render(pairs)}\n", flush=True)
        print(f"written to {options.json}", file=sys.stderr)
    if failure:
        print(f"error: {failure}", file=sys.stderr)
    return int(bool(failure))


def compare(options: argparse.Namespace) -> Iterable[tuple[str, Pair]]:
    """Run all rounds and return their pairs as they come.

    Every round goes through all workloads, so that a slow quarter of an hour is not all in one of
    them. The round before the first warms up: it compiles Python files, makes data, and fills the
    caches of the file system.
    """
    for number in range(options.rounds + 1):
        for name in options.only:
            pair = _pair(COMPARED[name], number, options)
            if number:
                yield name, pair


def _pair(compared: Compared, number: int, options: argparse.Namespace) -> Pair:
    turn = f"round {number} of {options.rounds}" if number else "warm-up"
    # The round after the warm-up begins with "before".
    sides = order(number + 1)
    runs = {side: _run(compared, side, turn, options) for side in sides}
    return Pair(number, sides[0], runs["before"], runs["after"])


def _run(compared: Compared, side: Side, turn: str, options: argparse.Namespace) -> Run:
    directory: Path = getattr(options, side)
    settings = compared.settings(directory, options)
    workload, program = compared.workload, compared.program
    records = records_for(workload, program, settings)
    progress = Progress(f"[{turn}] {compared.name}, {side}, {records:,} {workload.unit}")
    progress.start()
    result = run_program(Path(sys.executable), program, workload, settings, progress.tick)
    rate = figure_of(result, compared.figure)
    if not rate:
        reason = result.failure or f"it measured no {compared.figure}"
        progress.end(reason)
        end = "".join(f"\n  {line}" for line in last_lines(settings))
        raise JobFailed(f"{compared.name} failed in {side} ({directory}): {reason}{end}")
    progress.end(f"{rate:,.0f}/s after warm-up, workers {result.workers_mb:,.0f} MB")
    return Run(rate, result.workers_mb)


def _warn_of_differences(options: argparse.Namespace) -> None:
    """Say which programs differ: then a ratio may be one of different work."""
    modules = [COMPARED[name].program.module for name in options.only]
    found = differing(modules, options.before, options.after)
    if found:
        note(f"the benchmark programs differ: {', '.join(found)}; is the work still the same?")


def _label(directory: Path) -> str:
    """Return a directory and its commit, where git knows it."""
    commit = commit_of(directory)
    return f"{directory} ({commit})" if commit else str(directory)


def _as_json(
    options: argparse.Namespace, load: float, pairs: dict[str, list[Pair]]
) -> dict[str, Any]:
    about = as_json([], [], Settings(ROOT, HOME, load=load))
    return {
        "date": about["date"],
        "machine": about["machine"],
        "before": _label(options.before),
        "after": _label(options.after),
        "scale": options.scale,
        "pairs": {name: [asdict(pair) for pair in each] for name, each in pairs.items()},
    }
