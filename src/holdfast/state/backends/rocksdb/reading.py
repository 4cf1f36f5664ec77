"""Reads the tables of a head as sections of state files, without a database of a subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

from holdfast.common.leftovers import OwnDirectory
from holdfast.common.private import user_directory
from holdfast.state.backends.rocksdb.database import Database, TableSpan, budget_of
from holdfast.state.backends.rocksdb.rows import (
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
from holdfast.state.errors import StateCorruptionError, StateStorageError, decoding
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import Section, SectionChunk
from holdfast.state.format.head import Head
from holdfast.state.format.table_files import TableIndex, fetch_tables
from holdfast.state.storage.directory import ReadableStorage
from holdfast.state.types.serializers import Codec, EncodedColumn, Loads, Serializer
from holdfast.state.types.unpickling import unpickle

#: maximum number of rows in memory at a time
_ROWS: Final = 4096
#: size of the cache; enough to read tables once from beginning to end
_MEMORY: Final = 16 << 20
_THREADS: Final = 4
_PLAIN: Final = Serializer()

#: raises the error for something pickled
Refuse = Callable[[str], None]
#: from the key of one row to that of another, exclusive
Span = tuple[bytes, bytes]
#: key group, key, row
_Entry = tuple[int, Any, bytes]


@contextmanager
def open_tables(
    storage: ReadableStorage, head: Head, index: TableIndex, spans: Sequence[Span]
) -> Iterator[Database]:
    """Open the tables of a head as a temporary database in a directory of its own.

    Only tables that may have rows in these spans are fetched.
    """
    with OwnDirectory(user_directory(), "tables") as directory:
        _write_lists(index, directory)
        names = _needed(directory, head, spans)
        needed = [
            (ref, name)
            for ref, name in zip(head.tables, index.tables, strict=True)
            if name in names
        ]
        fetch_tables(storage, [ref for ref, _ in needed], directory, _THREADS)
        for ref, name in needed:
            (directory / ref.name).rename(directory / name)
        with closing(_opened(directory, head)) as database:
            yield database


def _needed(directory: Path, head: Head, spans: Sequence[Span]) -> set[str]:
    with closing(_opened(directory, head)) as database:
        return needed_tables(database.tables(), spans)


def _opened(directory: Path, head: Head) -> Database:
    try:
        return Database(directory, budget_of(_MEMORY), partial=True)
    except StateStorageError as error:
        message = f"the tables of state file {head.files[0].name!r} cannot be used: {error}"
        raise StateCorruptionError(message) from error


def needed_tables(tables: Iterable[TableSpan], spans: Sequence[Span]) -> set[str]:
    """Return the tables that RocksDB opens when it scans these spans.

    All tables of level 0, since RocksDB opens them for every scan. Of other levels, the tables that
    overlap a span, and the next one after it, which RocksDB reads to find the end of the span.

    >>> tables = [TableSpan(str(n), 1, b"%d0" % n, b"%d9" % n) for n in range(1, 8)]
    >>> tables += [TableSpan("new", 0, b"10", b"11"), TableSpan("deep", 6, b"70", b"72")]
    >>> sorted(needed_tables(tables, [(b"25", b"40")]))
    ['2', '3', '4', 'deep', 'new']
    """
    if not spans:
        return set()
    by_level: dict[int, list[TableSpan]] = {}
    for table in tables:
        by_level.setdefault(table.level, []).append(table)
    needed = {table.name for table in by_level.pop(0, ())}
    for level in by_level.values():
        level.sort(key=lambda table: table.first)
        for start, end in spans:
            for table in level:
                if table.last >= start:
                    needed.add(table.name)
                    if table.first >= end:
                        break
    return needed


def lay_out(head: Head, index: TableIndex, tables: Path, directory: Path) -> None:
    """Create a database in a directory, from tables that have the names of their files."""
    for ref, name in zip(head.tables, index.tables, strict=True):
        (directory / name).hardlink_to(tables / ref.name)
    _write_lists(index, directory)


def _write_lists(index: TableIndex, directory: Path) -> None:
    for name, data in index.files.items():
        (directory / name).write_bytes(data)


def span_of(number: int, key_groups: range | None = None) -> Span:
    """Return the span of the rows of a state; ``key_groups``: only of these."""
    if key_groups is None:
        return state_prefix(number), state_prefix(number + 1)
    return state_prefix(number, key_groups.start), state_prefix(number, key_groups.stop)


def sections_of(
    database: Database,
    number: int,
    state: Section,
    refuse: Refuse | None = None,
    key_groups: range | None = None,
    loads: Loads = unpickle,
) -> Iterator[Section]:
    """Yield the rows of a state as sections with a bounded number of keys.

    ``refuse`` is called, and must raise, if a row has pickled values; nothing is unpickled before.
    ``key_groups``: only of these. ``loads`` unpickles pickled keys.
    """
    with decoding(str(state.id)):
        rows = database.scan(*span_of(number, key_groups))
        checked = rows if refuse is None else _checked(rows, state, refuse)
        entries = _entries(checked, state.namespaced, loads)
        while part := list(islice(entries, _ROWS)):
            yield replace(state, chunks=tuple(_chunks(part, state)))


def _checked(
    rows: Iterable[tuple[bytes, bytes]], state: Section, refuse: Refuse
) -> Iterator[tuple[bytes, bytes]]:
    for row_key, row in rows:
        if is_pickled(row, state.kind):
            refuse(str(state.id))
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


def _chunks(entries: list[_Entry], state: Section) -> Iterator[SectionChunk]:
    """Yield chunks; all columns of a chunk have the same codec."""
    for codecs, found in groupby(entries, lambda entry: _codecs(entry[2], state)):
        same = list(found)
        # NB: each pickled column is a separate pickle, and its class may not exist any more.
        pickled = Codec.PICKLE in codecs
        for part in ([entry] for entry in same) if pickled else (same,):
            yield _chunk(part, state)


def _chunk(entries: list[_Entry], state: Section) -> SectionChunk:
    groups, keys, rows = zip(*entries, strict=True)
    op, columns = _columns(state.kind, rows)
    key_columns = [list(c) for c in zip(*keys, strict=True)] if state.namespaced else [list(keys)]
    encoded = (*map(_PLAIN.encode, key_columns), *columns)
    return SectionChunk(op, groups[0], groups[-1], False, len(entries), encoded)


def _columns(kind: str, rows: tuple[bytes, ...]) -> tuple[Op, list[EncodedColumn]]:
    """Return the operation that writes these rows, and its columns."""
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
