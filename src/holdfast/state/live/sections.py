"""Conversion between tables and files: entries to chunks by key group, and back.

Writing: the keys of an operation are sorted by key group and cut into chunks; each chunk's columns
are converted to their declared type and encoded. Reading: chunks of other key groups are skipped
without decoding them; a chunk that only partly belongs to the reader's key groups is decoded and
filtered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, compress, repeat
from typing import Any, Final

import numpy as np

from holdfast.state.errors import StateMigrationError, StateTypeError, decoding
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import Section, SectionChunk
from holdfast.state.key_groups import key_groups_of
from holdfast.state.live.column_rows import ColumnRows
from holdfast.state.live.tables import Columns, Table
from holdfast.state.names import StateId
from holdfast.state.types.schema import Schema, describe
from holdfast.state.types.serializers import Serializer, Unreadable

#: keys per chunk: enough to make the cost per chunk negligible
_CHUNK: Final = 4096
_PLAIN: Final = Serializer()

#: the number of columns with one item per key; the last of them has the lengths of the flat columns
_ROWS: Final = {
    Op.PUT: 1,
    Op.DELETE: 0,
    Op.LIST_REPLACE: 1,
    Op.LIST_APPEND: 2,
    Op.MAP_REPLACE: 1,
    Op.MAP_PUT: 1,
    Op.MAP_REMOVE: 1,
}

_KIND_NAMES: Final = {
    "value": "ValueState",
    "list": "ListState",
    "map": "MapState",
    "reducing": "ReducingState",
    "aggregating": "AggregatingState",
    "folding": "FoldingState",
    "column": "ColumnState",
}


def export_section(
    table: Table[Any], marks: Any | None, max_parallelism: int, shaped: bool = False
) -> Section:
    """Return the marked entries, or all of them, as a section of a file.

    ``shaped``: whether all entries have been converted to their declared type already.
    """
    if isinstance(table, ColumnRows):
        return as_section(table, max_parallelism, table.export(marks, max_parallelism))
    chunks: list[SectionChunk] = []
    for op, keys in table.operations(marks):
        rows = table.rows(op, keys, marks)
        for first, last, order in _in_key_groups(keys, table.namespaced, max_parallelism):
            part = _picked(keys, order)
            columns = table.columns(op, part, marks) if rows is None else [_picked(rows, order)]
            chunks.append(_export_chunk(table, op, first, last, part, columns, shaped))
    return as_section(table, max_parallelism, tuple(chunks))


def as_section(
    table: Table[Any], max_parallelism: int, chunks: tuple[SectionChunk, ...] = ()
) -> Section:
    """Return a section of the table's state."""
    return Section(
        table.operator,
        table.name,
        table.kind,
        table.namespaced,
        table.types,
        max_parallelism,
        chunks,
        table.expires,
    )


def load_section(table: Table[Any], section: Section, marks: Any | None) -> list[Any]:
    """Apply a section to a table, and mark the changes unless ``marks`` is None.

    Return the keys that the section contains.
    """
    saved, declared = (section.kind, section.expires), (table.kind, table.expires)
    check_kind(section.id, saved, declared)
    if isinstance(table, ColumnRows):
        return table.load(section, marks)
    readers = _readers(table, section)
    concerned: list[Any] = []
    for chunk in section.chunks:
        with decoding(str(section.id)):
            keys, columns = _decode_chunk(table, section, chunk, readers)
            if chunk.clipped:
                keys, columns = sieve(section, chunk, keys, columns)
            table.apply(chunk.op, keys, columns)
            if marks is not None:
                table.mark(marks, chunk.op, keys, columns)
        concerned += keys
    return concerned


def check_kind(state: StateId, saved: tuple[str, bool], declared: tuple[str, bool]) -> None:
    """Raise a StateMigrationError if a state is declared as another kind than the saved one.

    ``saved`` and ``declared`` are the kind of a descriptor, and whether the state expires.
    """
    if saved != declared:
        names = kind_name(*saved), kind_name(*declared)
        message = (
            f"{state} was saved as {names[0]}; this job declares {names[1]}; "
            "rename the state, or declare it as it was saved"
        )
        raise StateMigrationError(message)


def kind_name(kind: str, expires: bool) -> str:
    """Return the name of a kind of state in messages."""
    return f"{_KIND_NAMES.get(kind, kind)}{' with time-to-live' if expires else ''}"


def _export_chunk(
    table: Table[Any],
    op: Op,
    first: int,
    last: int,
    keys: list[Any],
    columns: Columns,
    shaped: bool,
) -> SectionChunk:
    if not shaped:
        columns = _shaped(table, op, keys, columns)
    serializers = (*_key_serializers(table), *table.column_serializers(op))
    with _explaining(table, op, keys, columns):
        given = [*_key_columns(keys, table.namespaced), *columns]
        encoded = tuple(s.encode(column) for s, column in zip(serializers, given, strict=True))
    return SectionChunk(op, first, last, False, len(keys), encoded)


def encode_entries(
    table: Table[Any], keys: list[Any], encode: Callable[[list[Any]], list[bytes]]
) -> list[bytes]:
    """Convert the entries of keys to their declared type, and return them encoded."""
    op = table.whole
    columns = table.columns(op, keys, None)
    columns = _shaped(table, op, keys, columns)
    with _explaining(table, op, keys, columns):
        return encode(list(map(table.entries.__getitem__, keys)))


def _shaped(table: Table[Any], op: Op, keys: list[Any], columns: Columns) -> Columns:
    """Return the columns converted to their declared type, and convert live entries as well.

    NB: live entries are converted so that a worker that keeps them sees the same values as one that
    reads the file. The entries of a picture are not converted, since the live entries may have
    changed meanwhile.
    """
    serializers = table.column_serializers(op)
    try:
        shaped = [s.shape(column) for s, column in zip(serializers, columns, strict=True)]
    except (TypeError, ValueError):
        raise _misfit(table, op, keys, columns) from None
    if all(new is old for new, old in zip(shaped, columns, strict=True)):
        return columns
    if shaped[1:2] != columns[1:2] and op in (Op.MAP_PUT, Op.MAP_REPLACE, Op.MAP_REMOVE):
        raise _changed_map_key(table, columns[1], shaped[1])
    if not table.is_picture:
        table.apply(op, keys, shaped)
    return shaped


def _misfit(table: Table[Any], op: Op, keys: list[Any], columns: Columns) -> StateTypeError:
    for index, serializer in enumerate(table.column_serializers(op)):
        found = serializer.misfit(columns[index])
        if found is not None:
            position, error = found
            owners = keys if index < _ROWS[op] else _owners(op, keys, columns)
            return StateTypeError(
                f"{table.id}, key {owners[position]!r}: {error}; store values of the declared "
                "type, or declare another one"
            )
    return StateTypeError(f"{table.id}: a value does not fit its declared type")  # pragma: no cover


def _changed_map_key(table: Table[Any], given: list[Any], shaped: list[Any]) -> StateTypeError:
    old, new = next((a, b) for a, b in zip(given, shaped, strict=True) if a != b)
    return StateTypeError(
        f"{table.id}: the map key {old!r} has the declared shape {new!r}, which is another key; "
        "use keys of the declared type"
    )


@contextmanager
def _explaining(table: Table[Any], op: Op, keys: list[Any], columns: Columns) -> Iterator[None]:
    """Convert errors of encoding into an error that names the state and the reason."""
    try:
        yield
    except Unreadable:
        raise _misfit(table, op, keys, columns) from None
    except Exception as error:
        message = (
            f"{table.id} contains a value that cannot be pickled: {type(error).__name__}: "
            f"{error}; keep only data in state, and open connections in open()"
        )
        raise StateTypeError(message) from error


def by_key_group(
    keys: list[Any], namespaced: bool, max_parallelism: int
) -> Iterator[tuple[int, int, list[Any]]]:
    """Yield the keys in chunks, each with its first and last key group."""
    for first, last, order in _in_key_groups(keys, namespaced, max_parallelism):
        yield first, last, _picked(keys, order)


def _in_key_groups(
    keys: list[Any], namespaced: bool, max_parallelism: int
) -> Iterator[tuple[int, int, list[int] | None]]:
    """Yield chunks, each with its first and last key group and the positions of its keys.

    None means all keys in their given order.
    """
    if not keys:
        return
    groups = key_groups_of([key for key, _ in keys] if namespaced else keys, max_parallelism)
    if len(keys) <= _CHUNK:
        yield int(groups.min()), int(groups.max()), None
        return
    order = np.argsort(groups, kind="stable")
    groups = groups[order]
    for start in range(0, len(keys), _CHUNK):
        places = order[start : start + _CHUNK].tolist()
        yield int(groups[start]), int(groups[start + len(places) - 1]), places


def _picked(items: list[Any], places: list[int] | None) -> list[Any]:
    return items if places is None else list(map(items.__getitem__, places))


def _key_columns(keys: list[Any], namespaced: bool) -> Columns:
    return [[key for key, _ in keys], [space for _, space in keys]] if namespaced else [keys]


def _key_serializers(table: Table[Any]) -> tuple[Serializer, ...]:
    return (_PLAIN, _PLAIN) if table.namespaced else (_PLAIN,)


def _readers(table: Table[Any], section: Section) -> dict[int, Serializer]:
    """Return the serializers that read the section, by the `id` of the table's serializer."""
    try:
        pairs = zip(table.serializers, section.types, strict=True)
        return {id(serializer): serializer.reading(saved) for serializer, saved in pairs}
    except StateMigrationError as error:
        raise unreadable(section.id, section.types, table.types, error) from error


def _decode_chunk(
    table: Table[Any], section: Section, chunk: SectionChunk, readers: dict[int, Serializer]
) -> tuple[list[Any], Columns]:
    serializers = (*_key_serializers(table), *table.column_serializers(chunk.op))
    try:
        pairs = zip(serializers, chunk.columns, strict=True)
        columns = [readers.get(id(s), s).decode(column) for s, column in pairs]
    except StateMigrationError as error:
        raise unreadable(section.id, section.types, table.types, error) from error
    keys = list(zip(columns[0], columns[1], strict=True)) if table.namespaced else columns[0]
    del columns[: len(_key_serializers(table))]
    check_columns(chunk, keys, columns)
    return keys, columns


def check_columns(chunk: SectionChunk, keys: list[Any], columns: Columns) -> None:
    """Check that the columns of a chunk match its keys.

    Raises:
        ValueError: if the number of items in a column is wrong.
    """
    rows = _ROWS[chunk.op]
    counts = [len(keys), *map(len, columns[:rows])]
    if any(count != chunk.count for count in counts):
        message = f"{chunk.op.name} of {chunk.count} keys has columns of {counts} items"
        raise ValueError(message)
    if len(columns) == rows:
        return
    for numbers in columns[:rows]:
        if not set(map(type, numbers)) <= {int} or min(numbers, default=0) < 0:
            message = f"{chunk.op.name} has lengths that are negative or not integers"
            raise ValueError(message)
    flat = [len(column) for column in columns[rows:]]
    total = sum(columns[rows - 1])
    if any(count != total for count in flat):
        message = f"{chunk.op.name} of {total} items has columns of {flat} items"
        raise ValueError(message)


def unreadable(
    state: StateId,
    saved: tuple[Schema | None, ...],
    declared: tuple[Schema | None, ...],
    problem: Exception | str,
) -> StateMigrationError:
    """Return the error for a state whose saved types cannot be read as the declared ones."""
    return StateMigrationError(
        f"{state} was saved as {_type_names(saved)}; this job declares "
        f"{_type_names(declared)}: {problem}"
    )


def _type_names(types: tuple[Schema | None, ...]) -> str:
    return ", ".join(map(describe, types))


def sieve(
    section: Section, chunk: SectionChunk, keys: list[Any], columns: Columns
) -> tuple[list[Any], Columns]:
    """Return only the keys that are in the chunk's key groups, and their columns."""
    plain = [key for key, _ in keys] if section.namespaced else keys
    groups = key_groups_of(plain, section.max_parallelism)
    ours = ((groups >= chunk.first) & (groups <= chunk.last)).tolist()
    rows = _ROWS[chunk.op]
    flat = list(_owners(chunk.op, ours, columns)) if len(columns) > rows else []
    sieved = [list(compress(column, ours)) for column in columns[:rows]]
    sieved += [list(compress(column, flat)) for column in columns[rows:]]
    return list(compress(keys, ours)), sieved


def _owners(op: Op, keys: list[Any], columns: Columns) -> list[Any]:
    """Return, for each item of the flat columns, the item of ``keys`` that it belongs to."""
    lengths = columns[_ROWS[op] - 1]
    return list(chain.from_iterable(map(repeat, keys, lengths)))
