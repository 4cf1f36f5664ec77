"""`ColumnRows`: a state in columns as a table of a backend, and as sections of files.

Its entries are the rows of one column of an operator's `ColumnTable`, its marks are slots. So what
a checkpoint costs follows the rows that changed. A picture is a copy of these rows; keys are not
copied, since those of a slot never change. The rows are sorted by key group when they are written.

Slots get new numbers when dead ones are removed (`ColumnTable.compact`). Backends do that only
when a base is taken, after which all earlier marks are obsolete; marks of before are ignored.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, NoReturn

import numpy as np
import pyarrow as pa

from holdfast.errors import InternalError
from holdfast.state.column_keys import column_key_groups, key_array
from holdfast.state.columns.column import Column, Rows
from holdfast.state.columns.forms import ValueForm
from holdfast.state.columns.growing import Array, Mask, Slots
from holdfast.state.columns.key_reader import KeyReader
from holdfast.state.columns.table import ColumnTable
from holdfast.state.descriptors import ColumnStateDescriptor
from holdfast.state.errors import StateMigrationError, decoding
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import Section, SectionChunk
from holdfast.state.live.tables import Columns, Table
from holdfast.state.live.ttl.lifetime import stamped
from holdfast.state.names import StateId
from holdfast.state.types.arrow_columns import (
    decode_arrow,
    encode_arrow,
    encode_tuples,
    is_tuples,
)
from holdfast.state.types.arrow_types import can_widen
from holdfast.state.types.plain_values import plain_values
from holdfast.state.types.schema import Schema
from holdfast.state.types.schema_of import schema_of
from holdfast.state.types.serializers import Codec, EncodedColumn, Serializer, decode_untyped
from holdfast.state.types.unpickling import unpickle

#: rows that become Python objects at a time
_AT_ONCE: Final = 4096


class SlotMarks:
    """Rows that changed, by slot.

    Attributes:
        generation: the numbering of the slots; None if there are none yet.
    """

    __slots__ = ("generation", "slots")

    def __init__(self, slots: Slots | None = None, generation: int | None = None) -> None:
        self.slots = np.zeros(0, np.int64) if slots is None else slots
        self.generation = generation

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, slots: Slots, generation: int) -> None:
        """Add slots. Those of an earlier numbering are dropped."""
        older = self.slots if self.generation == generation else slots[:0]
        self.slots, self.generation = np.union1d(older, slots), generation


class _Dirty:
    """The rows of a column that changed since the last capture."""

    __slots__ = ("_column", "_table")

    def __init__(self, table: ColumnTable, column: Column) -> None:
        self._table = table
        self._column = column

    def __len__(self) -> int:
        return int(np.count_nonzero(self._column.dirty))

    def __bool__(self) -> bool:
        return bool(self._column.dirty.any())

    def copy(self) -> SlotMarks:
        """Return the marks."""
        return SlotMarks(np.flatnonzero(self._column.dirty), self._table.generation)

    def clear(self) -> None:
        """Remove all marks."""
        self._column.dirty[:] = False


class ColumnEntries(Mapping[Any, Any]):
    """The values of a column by Python keys; pairs with the time of their last access."""

    def __init__(self, rows: ColumnRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows.column.count

    def __bool__(self) -> bool:
        return bool(self._rows.column.present.any())

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._rows.walk())

    def __getitem__(self, key: Any) -> Any:
        slot = self._rows.slot_of(key)
        if slot is None:
            raise KeyError(key)
        return self._rows.python_rows(self._rows.column.take(slot))[0]

    def clear(self) -> None:
        """Remove everything."""
        self._rows.table.clear()


class ColumnRows(Table[Any]):
    """One state in columns of one operator.

    Attributes:
        table: the keys and columns of the operator.
        column: the column of this state.
    """

    __slots__ = ("_taken", "_types", "column", "table")

    renumbers: ClassVar[bool] = True

    def __init__(
        self, state: StateId, descriptor: ColumnStateDescriptor, table: ColumnTable
    ) -> None:
        form, expires = ValueForm(descriptor.arrow_type), descriptor.ttl_config is not None
        default = descriptor.default
        if default is not None:
            default = form.numbers(pa.array([default], form.type))[0]
        self.table = table
        self.column = Column(form, default, expires)
        super().__init__(*state[:2], "column", (descriptor.type_info,), state.namespaced, expires)
        saved = stamped(descriptor) if expires else descriptor
        self._types = tuple(map(schema_of, saved.declared_types))
        self._taken: tuple[Rows, KeyReader] | None = None
        self.entries: Any = ColumnEntries(self)
        self.dirty = _Dirty(table, self.column)
        table.add_column(state.name, self.column)

    @property
    def types(self) -> tuple[Schema | None, ...]:
        """Return the types, as files record them."""
        return self._types

    def clear(self) -> None:
        """Discard all keys and columns of the operator, without marks."""
        self.table.clear()

    # Marks and pictures.

    @staticmethod
    def new_marks() -> SlotMarks:
        return SlotMarks()

    def merge(self, older: SlotMarks, newer: SlotMarks) -> SlotMarks:
        if newer.generation is not None:
            older.add(newer.slots, newer.generation)
        return older

    def picture(self, marks: SlotMarks | None) -> ColumnRows:
        picture = copy.copy(self)
        picture._taken = self._take(marks), self.table.reader()
        picture.is_picture = True
        return picture

    def _take(self, marks: SlotMarks | None) -> Rows:
        if marks is None:
            return self.column.take(None)
        known = marks.generation == self.table.generation
        return self.column.take(marks.slots if known else marks.slots[:0])

    # Writing.

    def export(self, marks: SlotMarks | None, max_parallelism: int) -> tuple[SectionChunk, ...]:
        """Return the marked rows, or all of them, as chunks of a file."""
        if self._taken is not None:
            return self._chunks(*self._taken, max_parallelism)
        return self._chunks(self._take(marks), self.table.reader(), max_parallelism)

    def export_key(self, key: Any, max_parallelism: int) -> tuple[SectionChunk, ...]:
        """Return the row of a key as chunks of a file; none if it has no value."""
        slot = self.slot_of(key)
        if slot is None:
            return ()
        return self._chunks(self.column.take(slot), self.table.reader(), max_parallelism)

    def _chunks(
        self, rows: Rows, reader: KeyReader, max_parallelism: int
    ) -> tuple[SectionChunk, ...]:
        chunks: list[SectionChunk] = []
        rows, slots = rows.with_slots()
        for op, of in ((Op.PUT, rows.present), (Op.DELETE, ~rows.present)):
            places = np.flatnonzero(of)
            for keys in reader.chunks(slots[places], max_parallelism):
                part = places[keys.places]
                columns = keys.columns
                if op is Op.PUT:
                    columns += (self._encoded(rows, part),)
                chunks.append(SectionChunk(op, keys.first, keys.last, False, len(part), columns))
        return tuple(chunks)

    def _encoded(self, rows: Rows, places: Slots) -> EncodedColumn:
        values = self.column.form.array(rows.values[places])
        if rows.stamps is None:
            return EncodedColumn(Codec.ARROW, encode_arrow(values))
        stamps = pa.array(rows.stamps[places])
        return EncodedColumn(Codec.ARROW, encode_tuples([values, stamps], ["value", "stamp"]))

    # Reading.

    def load(self, section: Section, marks: SlotMarks | None) -> list[Any]:
        """Apply the chunks of a section, and mark them unless ``marks`` is None."""
        self.table.loads += 1
        for chunk in section.chunks:
            with decoding(str(section.id)):
                slots = self._load_chunk(section, chunk)
            if marks is not None:
                marks.add(slots, self.table.generation)
        return []

    def _load_chunk(self, section: Section, chunk: SectionChunk) -> Slots:
        keys = self._keys(section, chunk, 0)
        spaces = self._keys(section, chunk, 1) if self.namespaced else None
        ours: Mask | slice = slice(None)
        if chunk.clipped:
            groups = column_key_groups(keys, section.max_parallelism)
            ours = (groups >= chunk.first) & (groups <= chunk.last)
            mask = pa.array(ours)
            keys, spaces = keys.filter(mask), None if spaces is None else spaces.filter(mask)
        slots = self.table.keys(keys, spaces).rows
        if chunk.op is Op.DELETE:
            self.column.unload(slots)
        else:
            values, stamps = self._values(section, self._value_batch(section, chunk))
            self.column.load(slots, values[ours], None if stamps is None else stamps[ours])
        return slots

    def _keys(self, section: Section, chunk: SectionChunk, place: int) -> pa.Array:
        """Return the keys of a chunk, or their namespaces.

        The savepoint API writes state without Arrow, like any other.
        """
        column = chunk.columns[place]
        if column.codec is Codec.ARROW:
            batch = _batch(column, chunk.count)
            return batch.to_struct_array() if is_tuples(batch) else batch.column(0)
        keys, table = decode_untyped(column), self.table
        try:
            space = None if table.shape is None else table.shape.namespace
            known = space if place else table.key_type()
            return _counted(key_array(keys, known), chunk.count)
        except (pa.ArrowException, TypeError, ValueError) as error:
            message = f"{section.id}: the saved keys cannot be read as a column: {error}"
            raise StateMigrationError(message) from error

    def _value_batch(self, section: Section, chunk: SectionChunk) -> pa.RecordBatch:
        column, type_ = chunk.columns[-1], self.column.form.type
        if column.codec is Codec.ARROW:
            return _batch(column, chunk.count)
        values = plain_values(section.types[0], column, unpickle)
        stamps = [pair[1] for pair in values] if self.expires else []
        values = [pair[0] for pair in values] if self.expires else values
        try:
            arrays = [_counted(pa.array(values, type_), chunk.count)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            message = f"{section.id}: a saved value is not of the declared type {type_}: {error}"
            raise StateMigrationError(message) from error
        arrays += [pa.array(stamps, pa.int64())] if self.expires else []
        return pa.record_batch(arrays, [f"f{place}" for place in range(len(arrays))])

    def _values(self, section: Section, batch: pa.RecordBatch) -> tuple[Array, Array | None]:
        form, values = self.column.form, batch.column(0)
        if batch.num_columns != 1 + self.expires or any(c.null_count for c in batch.columns):
            message = f"a column of values has {batch.num_columns} columns, or nulls"
            raise ValueError(message)
        if not can_widen(values.type, form.type):
            message = (
                f"{section.id} was saved as {values.type}; this job declares {form.type}; rename "
                "the state, or declare the saved type or a wider one"
            )
            raise StateMigrationError(message)
        try:
            wide = values.cast(form.type)
        except pa.ArrowException as error:
            message = (
                f"{section.id} was saved as {values.type}; this job declares {form.type}: {error}"
            )
            raise StateMigrationError(message) from error
        stamps = batch.column(1).cast(pa.int64()).to_numpy() if self.expires else None
        return form.numbers(wide), stamps

    # Entries as Python values.

    def slot_of(self, key: Any) -> Slots | None:
        """Return the slot of a Python key that has a value; with its namespace if it has one."""
        shape = self.table.shape
        if shape is None:
            return None
        try:
            pair = key if self.namespaced else (key, None)
            spaces = None if shape.namespace is None else key_array([pair[1]], shape.namespace)
            slots = self.table.find(key_array([pair[0]], shape.key), spaces)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None  # it is not a key of this type
        return slots if slots[0] >= 0 and self.column.present[slots[0]] else None

    def python_rows(self, rows: Rows) -> list[Any]:
        """Return the values of rows as Python values."""
        values = self.column.form.array(rows.values).to_pylist()
        if rows.stamps is None:
            return list(values)
        return list(zip(values, rows.stamps.tolist(), strict=True))

    def walk(self) -> Iterator[tuple[Any, Any]]:
        """Yield the entries as they are now: keys (with their namespaces), and values."""
        if not self.column.count:
            return
        reader = self.table.reader()
        rows, slots = self.column.take(None).with_slots()
        values, stamps = rows.values, rows.stamps
        for start in range(0, len(slots), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            at = None if stamps is None else stamps[part]
            few = Rows(slots[part], values[part], rows.present[part], at)
            yield from zip(reader.values(slots[part]), self.python_rows(few), strict=True)

    # Rows have no keys that are Python objects.

    @staticmethod
    def _copied(entry: Any) -> NoReturn:
        raise _by_slot()

    def mark(self, marks: Any, op: Op, keys: list[Any], columns: Columns) -> NoReturn:
        raise _by_slot()

    def operations(self, marks: Any) -> NoReturn:
        raise _by_slot()

    def columns(self, op: Op, keys: list[Any], marks: Any) -> NoReturn:
        raise _by_slot()

    def column_serializers(self, op: Op) -> tuple[Serializer, ...]:
        raise _by_slot()

    def apply(self, op: Op, keys: list[Any], columns: Columns) -> NoReturn:
        raise _by_slot()


def _by_slot() -> InternalError:
    return InternalError("rows of columns are read and written by their slots")


def _batch(column: EncodedColumn, count: int) -> pa.RecordBatch:
    batch: pa.RecordBatch = _counted(decode_arrow(column.data), count)
    return batch


def _counted(column: Any, count: int) -> Any:
    if len(column) != count:
        message = f"a column has {len(column)} rows, not {count}"
        raise ValueError(message)
    return column
