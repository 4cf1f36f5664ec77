"""The first records of a stream as a table, for notebooks and terminals."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from html import escape
from typing import Any, Final, NamedTuple

from holdfast.common import Row
from holdfast.datastream.streams.closeable_iterator import CloseableIterator
from holdfast.errors import JobCancelledError
from holdfast.printable import counted, printable
from holdfast.tracebacks import ipython_shell

#: longer values are cut
_LONGEST: Final = 60
#: the name of the column of records that have no fields
_VALUE: Final = "value"


class Preview(NamedTuple):
    """Records of a stream; shown as a table.

    Attributes:
        records: the records, in the order in which they arrived.
        note: how many there are, and why there are no more.
    """

    records: tuple[Any, ...]
    note: str

    def __repr__(self) -> str:
        columns, rows = _table([_fields(record) for record in self.records])
        lines = [[printable(cell) for cell in line] for line in (columns, *rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        if rows:
            shown.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([*shown, f"({self.note})"] if rows else [f"({self.note})"])

    def _repr_html_(self) -> str:
        columns, rows = _table([_fields(record) for record in self.records])
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return (table if rows else "") + f"<p>{escape(self.note)}</p>"


def take(records: CloseableIterator, count: int, seconds: float) -> Preview:
    """Read at most so many records, for at most so many seconds; then cancel the job."""
    found: list[Any] = []
    timed_out = threading.Event()

    def end() -> None:
        timed_out.set()
        records.cancel()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    with records:
        timer.start()
        try:
            for record in records:
                found.append(record)
                if len(found) >= count:
                    return Preview(tuple(found), _first(count))
        except JobCancelledError:
            if not timed_out.is_set():
                raise
        finally:
            timer.cancel()
    number = counted(len(found), "record")
    if timed_out.is_set():
        return Preview(tuple(found), f"{number} in {seconds:g} s")
    return Preview(tuple(found), f"{number}, which are all")


def _first(count: int) -> str:
    return "the first record" if count == 1 else f"the first {count} records"


def show(preview: Preview) -> None:
    """Show a table in the notebook, or print it."""
    shell = ipython_shell()
    if shell is None:
        print(preview)
    else:
        data, metadata = shell.display_formatter.format(preview)
        shell.display_pub.publish(data=data, metadata=metadata)


def _fields(record: Any) -> dict[str, Any]:
    """Return the fields of a record; a record without any is one value."""
    if isinstance(record, Row):
        return _named(getattr(record, "_fields", None), list(record))
    if isinstance(record, tuple):
        return _named(getattr(record, "_fields", None), record)
    if isinstance(record, dict) and record:
        return {str(key): value for key, value in record.items()}
    names = getattr(type(record), "__struct_fields__", None)  # of msgspec
    if dataclasses.is_dataclass(record):
        names = [field.name for field in dataclasses.fields(record)]
    return {name: getattr(record, name) for name in names} if names else {_VALUE: record}


def _named(names: Sequence[str] | None, values: Sequence[Any]) -> dict[str, Any]:
    names = names or [f"f{place}" for place in range(len(values))]
    return dict(zip(names, values, strict=False)) or {_VALUE: values}


def _table(records: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the columns, and the rows; a field that a record lacks is empty."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [[_cell(record, name) for name in columns] for record in records]
    return columns, rows


def _cell(record: dict[str, Any], name: str) -> str:
    if name not in record:
        return ""
    value = record[name]
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
