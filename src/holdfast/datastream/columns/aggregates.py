"""Aggregates of windows over columns, and the partial results that panes keep for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.errors import JobTypeError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Aggregate", "avg", "count", "first", "last", "max_", "min_", "sum_", "top"]

#: the states of a pane: how many rows it has, and the earliest and the latest time of them
COUNT: Final = "count"
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of the rows of a window.

    Attributes:
        kind: how values are combined.
        column: the column of the values; None for what needs no column, such as the count.
    """

    kind: str
    column: str | None = None

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        """Return the type of the result for rows with these columns."""
        import pyarrow as pa
        import pyarrow.types as kinds

        if self.column is None or self.kind == "valid":
            return pa.int64()
        found = type_of(self.column, schema)
        if self.kind in ("sum", "avg") and not (
            kinds.is_integer(found) or kinds.is_floating(found) or kinds.is_decimal(found)
        ):
            message = (
                f"window_batches: {self.kind} needs numbers; column '{self.column}' has {found}"
            )
            raise JobTypeError(message)
        if self.kind == "avg" or (self.kind == "sum" and kinds.is_floating(found)):
            return pa.float64()
        if self.kind != "sum":
            return found
        return _widest(found) if kinds.is_decimal(found) else pa.int64()

    @property
    def partials(self) -> tuple[Aggregate, ...]:
        """Return what a pane keeps for it."""
        return (sum_(self.column or ""), counted(self.column)) if self.kind == "avg" else (self,)


@dataclass(frozen=True)
class Top(Aggregate):
    """The rows of a window with the largest or the smallest values of a column.

    Attributes:
        n: how many rows.
        columns: what is returned of them; one name for the values of a column alone, None for all.
        smallest: whether the smallest values are wanted.
    """

    n: int = 1
    columns: str | tuple[str, ...] | None = None
    smallest: bool = False

    def type_in(self, schema: pa.Schema) -> pa.DataType:
        import pyarrow as pa

        by = type_of(self.column or "", schema)
        if not (pa.types.is_primitive(by) or pa.types.is_boolean(by)):
            message = (
                f"window_batches: top needs numbers, dates or times to compare; column "
                f"'{self.column}' has {by}"
            )
            raise JobTypeError(message)
        if isinstance(self.columns, str):
            return pa.list_(type_of(self.columns, schema))
        names = self.shown_in(schema.names)
        return pa.list_(pa.struct([(name, type_of(name, schema)) for name in names]))

    @property
    def partials(self) -> tuple[Aggregate, ...]:
        return ()  # NB: it has states of its own

    def shown_in(self, names: Iterable[str]) -> list[str]:
        """Return the columns that are returned, of rows with these columns."""
        if self.columns is None:
            return list(names)
        return [self.columns] if isinstance(self.columns, str) else list(self.columns)

    def stored_in(self, schema: pa.Schema) -> list[str]:
        """Return the columns that are needed, of rows with these columns."""
        return list(dict.fromkeys([*self.shown_in(schema.names), self.column or ""]))


def count() -> Aggregate:
    """Return the number of rows."""
    return Aggregate("count")


def counted(column: str | None) -> Aggregate:
    """Return the number of values that are not null; a part of the average."""
    return Aggregate("valid", column)


def sum_(column: str) -> Aggregate:
    """Return the sum of a column: int64 of integers, float64 of floats, decimal of decimals."""
    return Aggregate("sum", column)


def min_(column: str) -> Aggregate:
    """Return the smallest value of a column."""
    return Aggregate("min", column)


def max_(column: str) -> Aggregate:
    """Return the largest value of a column."""
    return Aggregate("max", column)


def avg(column: str) -> Aggregate:
    """Return the mean of a column, as float64."""
    return Aggregate("avg", column)


def first(column: str) -> Aggregate:
    """Return the value of a column that arrived first; in sliding windows, in the first pane."""
    return Aggregate("first", column)


def last(column: str) -> Aggregate:
    """Return the value of a column that arrived last; in sliding windows, in the last pane."""
    return Aggregate("last", column)


def top(
    n: int, by: str, columns: str | Sequence[str] | None = None, *, smallest: bool = False
) -> Top:
    """Return the rows with the largest values of a column: a list with the best one first.

    Of rows with equal values, the one that arrived first comes first; in sliding windows and
    sessions, the one in the first pane. Rows whose value is null or NaN are ignored.

    Args:
        n: how many rows, at most.
        by: the column that is compared: numbers, dates or times.
        columns: the columns that the results have, as structs; None for all. With one name as a
            string, the results are the values of that column.
        smallest: return the rows with the smallest values.

    Raises:
        JobTypeError: when n is less than 1.
    """
    if n < 1:
        message = f"top: n must be at least 1; got {n}"
        raise JobTypeError(message)
    chosen = columns if columns is None or isinstance(columns, str) else tuple(columns)
    return Top("top", by, n, chosen, smallest)


def state_name(part: Aggregate) -> str:
    """Return the name of the state with a partial result."""
    return part.kind if part.column is None else f"{part.kind} of {part.column}"


def type_of(column: str, schema: pa.Schema) -> pa.DataType:
    """Return the type of the values of a column, which state holds without a dictionary.

    Raises:
        JobTypeError: when there is no such column.
    """
    import pyarrow.types as kinds

    at = schema.get_field_index(column)
    if at < 0:
        message = (
            f"window_batches: there is no column '{column}'; the columns are "
            f"{', '.join(schema.names)}"
        )
        raise JobTypeError(message)
    found = schema.field(at).type
    return found.value_type if kinds.is_dictionary(found) else found


def _widest(decimal: pa.DataType) -> pa.DataType:
    """Return the decimals with the same digits behind the point, and as many as possible before."""
    import pyarrow as pa

    wide = pa.types.is_decimal256(decimal)
    return pa.decimal256(76, decimal.scale) if wide else pa.decimal128(38, decimal.scale)
