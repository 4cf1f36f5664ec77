"""The command ``python -m benchmarks engines``: the resident engine against the epochs engine."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.engines.parts import ROWS, WORKS
from benchmarks.rounds import command
from benchmarks.rounds.suite import Suite

__all__ = ["SUITE", "main"]

SUITE = Suite(
    "engines",
    "Alternates Holdfast's engines and prints ratios, with the bars beside them.",
    WORKS,
    ROWS,
)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return command.run(SUITE, arguments)
