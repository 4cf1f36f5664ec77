"""What a command that runs several programs in turns is made of: works, their sides, and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.workloads import Program

__all__ = ["EPOCHS", "RESIDENT", "Row", "Side", "Suite", "Work"]

RESIDENT = "resident"
EPOCHS = "epochs"


@dataclass(frozen=True)
class Side:
    """One of the programs of a work: Holdfast on an engine, or a peer, which has none."""

    name: str
    program: Program
    engine: str = ""


@dataclass(frozen=True)
class Work:
    """The same work for several programs, which take turns.

    Attributes:
        part: What it belongs to: the word on the command line.
        size: How much of it there is unless told: enough to see that it works.
        full: How much it takes for a figure that counts.
        unit: What the size counts.
        timeout: Seconds after which a program is stopped.
    """

    name: str
    part: str
    sides: tuple[Side, ...]
    size: int
    full: int
    unit: str = "records"
    timeout: float = 900.0


@dataclass(frozen=True)
class Row:
    """One line of the table: a figure, what it is divided by, and the bars.

    Attributes:
        figures: Their geometric mean is what counts; most rows have one.
        of: The side whose figure it is.
        by: The side to divide by; "" for none.
        at_least, at_most: The bar for the figure itself.
        times_at_least, times_at_most: The bar for the ratio.
        more: Other works, whose figures belong to the line as well.
    """

    work: str
    text: str
    figures: tuple[str, ...]
    unit: str = ""
    of: str = RESIDENT
    by: str = EPOCHS
    at_least: float | None = None
    at_most: float | None = None
    times_at_least: float | None = None
    times_at_most: float | None = None
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """All that one command can run, and what is expected of it.

    Attributes:
        name: The word on the command line, and the name of the file with its results.
        description: What the command does, for its help.
    """

    name: str
    description: str
    works: Mapping[str, Work]
    rows: tuple[Row, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that can be chosen, in the order of the works."""
        return tuple(dict.fromkeys(work.part for work in self.works.values()))
