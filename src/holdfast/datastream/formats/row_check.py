"""`RowCheck`: records that do not fit into their columns go to a side output.

A sink has no side outputs, and finds such a record when it converts many at a time. So the check is
an operator before the sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.datastream.formats.columns import Columns, schema_of
from holdfast.datastream.functions import ProcessFunction
from holdfast.datastream.output_tag import OutputTag

__all__ = ["RowCheck"]


class RowCheck(ProcessFunction):
    """Passes on the records that fit; the others go to a side output, each with the reason."""

    def __init__(self, row_type: Any, misfits: OutputTag) -> None:
        """Take the type that the sink has, and where to give the others.

        Args:
            row_type: a dataclass, a msgspec ``Struct``, a row type with names, or a
                ``pyarrow.Schema``.
            misfits: gets a pair for each record that does not fit: the record, and why.

        Raises:
            TypeError: when there is no column type for a field.
        """
        self._columns = Columns(schema_of(row_type))
        self._misfits = misfits

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        """Check one record."""
        error = self._columns.error_of(value)
        if error is None:
            yield value
        else:
            yield self._misfits, (value, str(error))
