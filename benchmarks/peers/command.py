"""The command ``python -m benchmarks peers``: Holdfast beside its peers, in turns."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.parts import ROWS, WORKS
from benchmarks.rounds import command
from benchmarks.rounds.suite import Suite

__all__ = ["SUITE", "main"]

SUITE = Suite(
    "peers",
    "Alternates Holdfast and its peers and prints ratios, with the bars beside them.",
    WORKS,
    ROWS,
)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return command.run(SUITE, arguments)
