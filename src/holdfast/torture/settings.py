"""What is done to which program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import HoldfastError
from holdfast.torture.faults import FaultKind
from holdfast.torture.order import Order
from holdfast.torture.reading import ContentsReader

__all__ = ["TortureError", "TortureSettings"]


class TortureError(HoldfastError):
    """The job cannot be tortured."""


@dataclass(frozen=True)
class TortureSettings:
    """What is done to which program.

    Attributes:
        order: the program; directories and names are those of all runs together.
        command: what runs an order, in a process of its own.
        faults: how many.
        seed: determines the plan of faults.
        kinds: of faults.
        calm: how many undisturbed runs there are.
        patience: how long anything may take, in seconds.
        contents: reads what only the user knows how to read.
        ignored: names of sinks that are not compared.
        shrink: how many further runs may look for fewer faults that are enough for a difference.
        repeat: the command that does the same again, for the report.
        say: called with lines about what happens.
    """

    order: Order
    command: list[str]
    faults: int
    seed: int
    kinds: tuple[FaultKind, ...]
    calm: int = 2
    patience: float = 120.0
    contents: ContentsReader | None = None
    ignored: frozenset[str] = frozenset()
    repeat: str = ""
    shrink: int = 0
    say: Callable[[str], None] = lambda line: None
