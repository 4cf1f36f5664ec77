"""What the steps of a trial took, and the table of that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["MB", "Row", "WrongResult", "render"]

MB = 1_000_000
_HEAD = ("state MB", "step", "s", "MB read", "MB on hosts", "MB stored", "slot MB", "driver MB")


class WrongResult(Exception):
    """The job has failed, or what it has counted is wrong."""


@dataclass
class Row:
    """What one step took.

    Attributes:
        step: what was done.
        seconds: how long it took.
        state: the size of the last checkpoint afterwards, in bytes.
        changed: bytes of values that were written by the job.
        sent, received: bytes of objects that were read from the storage, and written to it.
        local: bytes of state that subtasks had on their hosts.
        slots_mb, driver_mb: the most memory of one slot, and of the driver's Python process.
        parts: what the seconds consist of, by name.
    """

    step: str
    seconds: float = 0.0
    state: int = 0
    changed: int = 0
    sent: int = 0
    received: int = 0
    local: int = 0
    slots_mb: float = 0.0
    driver_mb: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)


def render(rows: Iterable[tuple[int, Row]]) -> str:
    """Return a table."""
    lines = [_HEAD, ["---:", "---", *["---:"] * (len(_HEAD) - 2)]]
    lines += [_cells(size, row) for size, row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(size: int, row: Row) -> list[str]:
    figures = (row.sent / MB, row.local / MB, row.received / MB, row.slots_mb, row.driver_mb)
    return [f"{size:,}", row.step, f"{row.seconds:.1f}", *(f"{each:,.0f}" for each in figures)]
