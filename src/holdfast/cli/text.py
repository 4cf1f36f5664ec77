"""How things are written for people: tables, sizes, times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import click

from holdfast.printable import printable

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_STEP: Final = 1000


def say(line: str, err: bool = False) -> None:
    """Print a line; what is in it neither ends it nor controls the terminal."""
    click.echo(printable(line), err=err)


def size_of(size: int) -> str:
    """Return a number of bytes in three digits and a unit."""
    amount, unit = float(size), 0
    while round(amount) >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    digits = 1 if unit and amount < 10 else 0
    return f"{amount:.{digits}f} {_UNITS[unit]}"


def time_of(milliseconds: int) -> str:
    """Return a time in UTC, to the second."""
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{time:%Y-%m-%d %H:%M:%S}Z"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Return the lines of a table with aligned columns; the last one is not padded."""
    cells = [list(headers), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
