"""The tables of a chain as sections of state files, for readers that are no database."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.state.chain import Chain
from holdfast.state.errors import StateCorruptionError, StateStorageError, decoding
from holdfast.state.files import Chunk, Op, Section
from holdfast.state.rocksdb_database import Database, budget_of
from holdfast.state.rocksdb_rows import (
    KeyCodec,
    bucket_items,
    is_bucket,
    is_pickled,
    join_columns,
    list_column,
    map_columns,
    state_prefix,
    value_column,
)
from holdfast.state.serializers import Codec, Column, Loads, Serializer
from holdfast.state.storage import ReadableStorage
from holdfast.state.table_files import TableIndex, fetch_tables

__all__ = ["lay_out", "open_tables", "sections_of"]

#: rows that are held in memory at a time
_ROWS: Final = 4096
#: enough to read tables once from beginning to end
_MEMORY: Final = 16 << 20
_THREADS: Final = 4
_PLAIN: Final = Serializer()

#: raises the error for something pickled
Refuse = Callable[[str], None]
#: key group, key, row
_Entry = tuple[int, Any, bytes]


@contextmanager
def open_tables(storage: ReadableStorage, chain: Chain, index: TableIndex) -> Iterator[Database]:
    """Open the tables of a chain as a database in a directory of its own, for as long as needed."""
    with OwnDirectory(user_directory(), "tables") as directory:
        fetch_tables(storage, chain.tables, directory, _THREADS)
        lay_out(chain, index, directory, directory)
        with closing(_opened(directory, chain)) as database:
            yield database


def _opened(directory: Path, chain: Chain) -> Database:
    try:
        return Database(directory, budget_of(_MEMORY))
    except StateStorageError as error:
        message = f"the tables of state file {chain.files[0].name!r} cannot be used: {error}"
        raise StateCorruptionError(message) from error


def lay_out(chain: Chain, index: TableIndex, tables: Path, directory: Path) -> None:
    """Make a directory a database of the tables that another one has under their files' names."""
    for ref, name in zip(chain.tables, index.tables, strict=True):
        (directory / name).hardlink_to(tables / ref.name)
    for name, data in index.files.items():
        (directory / name).write_bytes(data)


def sections_of(
    database: Database,
    number: int,
    state: Section,
    refuse: Refuse | None = None,
    key_groups: range | None = None,
    loads: Loads = pickle.loads,
) -> Iterator[Section]:
    """Yield the rows of a state as sections of a bounded number of keys.

    ``refuse`` is called, and must raise, if something in them is pickled; nothing is unpickled
    before. ``key_groups``: only theirs. ``loads`` unpickles keys that are pickled.
    """
    start, end = state_prefix(number), state_prefix(number + 1)
    if key_groups is not None:
        start = state_prefix(number, key_groups.start)
        end = state_prefix(number, key_groups.stop)
    with decoding(f"state {state.state!r} of operator {state.operator!r}"):
        rows = database.scan(start, end)
        checked = rows if refuse is None else _checked(rows, state, refuse)
        entries = _entries(checked, state.namespaced, loads)
        while part := list(islice(entries, _ROWS)):
            yield replace(state, chunks=tuple(_chunks(part, state)))


def _checked(
    rows: Iterable[tuple[bytes, bytes]], state: Section, refuse: Refuse
) -> Iterator[tuple[bytes, bytes]]:
    for row_key, row in rows:
        if is_pickled(row, state.kind):
            refuse(f"state {state.state!r} of operator {state.operator!r}")
        yield row_key, row


def _codecs(row: bytes, state: Section) -> tuple[int, ...]:
    return tuple(row[:2] if state.kind == "map" else row[:1])


def _entries(
    rows: Iterable[tuple[bytes, bytes]], namespaced: bool, loads: Loads
) -> Iterator[_Entry]:
    for row_key, row in rows:
        group = KeyCodec.group_of(row_key)
        if is_bucket(row):
            yield from ((group, key, inner) for key, inner in bucket_items(row, namespaced, loads))
        else:
            yield group, KeyCodec.decode(row_key), row


def _chunks(entries: list[_Entry], state: Section) -> Iterator[Chunk]:
    """Yield chunks whose columns are written in one way each."""
    for codecs, found in groupby(entries, lambda entry: _codecs(entry[2], state)):
        same = list(found)
        # NB: each pickled column is a pickle of its own, and may be of a class that is gone.
        pickled = Codec.PICKLE in codecs
        for part in ([entry] for entry in same) if pickled else (same,):
            yield _chunk(part, state)


def _chunk(entries: list[_Entry], state: Section) -> Chunk:
    groups, keys, rows = zip(*entries, strict=True)
    op, columns = _columns(state.kind, rows)
    key_columns = [list(c) for c in zip(*keys, strict=True)] if state.namespaced else [list(keys)]
    encoded = (*map(_PLAIN.encode, key_columns), *columns)
    return Chunk(op, groups[0], groups[-1], False, len(entries), encoded)


def _columns(kind: str, rows: tuple[bytes, ...]) -> tuple[Op, list[Column]]:
    """Return the operation that sets these rows, and its columns."""
    if kind == "map":
        lengths, keys, values = zip(*map(map_columns, rows), strict=True)
        return Op.MAP_REPLACE, [
            _PLAIN.encode(list(lengths)),
            join_columns(keys),
            join_columns(values),
        ]
    if kind == "list":
        lengths, items = zip(*map(list_column, rows), strict=True)
        return Op.LIST_REPLACE, [_PLAIN.encode(list(lengths)), join_columns(items)]
    return Op.PUT, [join_columns(map(value_column, rows))]
