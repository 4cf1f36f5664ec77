"""The command ``python -m benchmarks scale``: what the driver takes for more and more slots.

The driver is the real one: its slots, rounds, checkpoints and history. Light slots answer as slots
do, from two other processes, and run no user code. Whole slots (``--whole``) are those of the
product, with all connections between them. What Spark takes to start the tasks is not measured.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.console import add_json_option, numbers, warn_if_busy
from benchmarks.report import write_json
from benchmarks.scale.driver import Cost, Figures, measure

__all__ = ["main", "parse", "render"]

_STEPS = ("gather", "round", "checkpoint", "restart")
_HEAD = (
    "| slots | step | ms | driver's processor ms | slots' processor ms | kB sent | kB received |"
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scale",
        description="Measures rounds, checkpoints and restarts of the driver with many slots.",
    )
    parser.add_argument(
        "--slots",
        type=numbers,
        metavar="A,B",
        help="numbers of light slots; 16,64,256 unless given",
    )
    parser.add_argument(
        "--whole",
        type=numbers,
        default=[],
        metavar="A,B",
        help="numbers of whole slots, which connect to each other; none unless given",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="rounds and checkpoints; 5 unless given"
    )
    add_json_option(parser, "scale")
    options = parser.parse_args(arguments)
    options.slots = options.slots or ([] if options.whole else [16, 64, 256])
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(arguments)
    warn_if_busy(os.getloadavg()[0])
    found: dict[str, list[Figures]] = {"light": [], "whole": []}
    for kind, counts in (("light", options.slots), ("whole", options.whole)):
        for slots in counts:
            print(f"{slots} {kind} slots", file=sys.stderr, flush=True)
            with TemporaryDirectory() as directory:
                found[kind].append(measure(slots, options.rounds, Path(directory), kind == "whole"))
            options.json.parent.mkdir(parents=True, exist_ok=True)
            as_json = {name: [asdict(each) for each in each] for name, each in found.items()}
            write_json(options.json, as_json)
    for kind, figures in found.items():
        if figures:
            print(f"\n{kind} slots\n\n{render(figures)}", flush=True)
    print(f"written to {options.json}", file=sys.stderr)
    return 0


def render(figures: Iterable[Figures]) -> str:
    """Return a table."""
    lines = [_HEAD, "| ---: | --- | ---: | ---: | ---: | ---: | ---: |"]
    for each in figures:
        lines += [_row(each.slots, step, getattr(each, step)) for step in _STEPS]
        lines.append(
            f"| {each.slots} | *memory* | driver {each.memory_mb:.0f} MB, by slot "
            f"{each.slot_memory_mb:.1f} MB, {each.slot_threads:.0f} threads, "
            f"{each.slot_files:.0f} open files |"
        )
    return "\n".join(lines)


def _row(slots: int, step: str, cost: Cost) -> str:
    cells = (cost.ms, cost.cpu_ms, cost.slots_cpu_ms, cost.sent / 1000, cost.received / 1000)
    return f"| {slots} | {step} | " + " | ".join(f"{cell:,.0f}" for cell in cells) + " |"
