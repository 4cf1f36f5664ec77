"""The type of a stream of batches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.common.typeinfo import BasicTypeInfo, TypeInformation, type_info_of

# NB: pyarrow takes long to load, and every stream asks whether its type is this one
if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.datastream.columns.making import BatchMaker

__all__ = ["BatchTypeInfo"]

#: the only column of records that are single values
VALUE = "value"


class BatchTypeInfo(TypeInformation):
    """The type of a stream whose records are rows of Arrow batches.

    Attributes:
        declared: what the columns were declared with. It says what the records are for a function
            that takes records: objects of a class, or rows.
        schema: the columns.
    """

    #: the stream's items are batches, not records
    columnar = True

    def __init__(self, declared: Any) -> None:
        """Take a `pyarrow.Schema`, a dataclass or another class with fields, or a row type.

        Raises:
            TypeError: when the type has no columns.
        """
        self.declared = declared
        self.schema = batch_schema(declared)

    @property
    def record_type(self) -> TypeInformation | None:
        """Return the declared type of single records; None for rows of a schema."""
        import pyarrow as pa

        return None if isinstance(self.declared, pa.Schema) else type_info_of(self.declared)

    def maker(self) -> BatchMaker:
        """Return what makes batches of this type out of what a source reads."""
        from holdfast.datastream.columns.making import BatchMaker

        return BatchMaker(self.schema)

    def coercer(self) -> Callable[[Any], Any] | None:
        """Return None: the results of functions are checked when they become batches."""
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchTypeInfo) and self.declared == other.declared

    def __hash__(self) -> int:
        return hash((BatchTypeInfo, tuple(self.schema.names)))

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"BatchTypeInfo({columns})"


def batch_schema(declared: Any) -> pa.Schema:
    """Return the columns for records of a type; single values have one column, ``value``."""
    import pyarrow as pa

    from holdfast.datastream.formats.columns import arrow_type, schema_of

    known = declared if isinstance(declared, pa.Schema) else type_info_of(declared)
    if isinstance(known, BasicTypeInfo):
        return pa.schema([(VALUE, arrow_type(known))])
    return schema_of(declared)


def is_record_batch(value: Any) -> bool:
    """Return whether a value is a ``pyarrow.RecordBatch``, without loading pyarrow."""
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(value, arrow.RecordBatch)
