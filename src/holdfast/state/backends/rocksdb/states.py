"""The states of a database: rows of any state, and cached entries of declared ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import accumulate, compress
from typing import Any, Final

from holdfast.state.backends.rocksdb.database import Budget, Changes, Database, RowSnapshot
from holdfast.state.backends.rocksdb.entries import CachedEntries
from holdfast.state.backends.rocksdb.reading import sections_of
from holdfast.state.backends.rocksdb.rows import (
    KeyCodec,
    RowCodec,
    bucket_items,
    encode_bucket,
    is_bucket,
    is_pickled,
    list_rows,
    map_rows,
    need_buckets,
    needs_bucket,
    split_column,
    state_prefix,
)
from holdfast.state.errors import decoding, undecodable
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import Section, SectionChunk
from holdfast.state.live.sections import encode_entries, load_section
from holdfast.state.live.tables import Table
from holdfast.state.types.serializers import Codec, Serializer

_PLAIN: Final = Serializer()
#: operations that overwrite rows
_WHOLE: Final = frozenset({Op.PUT, Op.DELETE, Op.LIST_REPLACE, Op.MAP_REPLACE})
#: estimated memory of an entry as Python objects: fixed part, and factor for its row
_ENTRY_BYTES: Final = 300
#: this many entries do not count against the memory
_FEW: Final = 1024
_OBJECT_BYTES: Final = 6
#: fewer entries than this are read one by one
_LEAST_AHEAD: Final = 16
#: one in this many blocks shows which states its records read
_SAMPLE: Final = 16
#: maximum number of changed entries between two writes; writing them takes about 50 ms
_MOST_CHANGED: Final = 1 << 14


class StateRows:
    """The rows of one state.

    Attributes:
        number: its number in the database.
        section: the section, without chunks, with which its rows were written.
    """

    def __init__(self, database: Database, number: int, section: Section) -> None:
        self.number = number
        self.section = section
        self._database = database
        self._keys = KeyCodec(number, section.namespaced, section.max_parallelism)
        self._bounds = state_prefix(number), state_prefix(number + 1)

    def is_empty(self) -> bool:
        """Return whether there is no row."""
        return not self._database.has_any(*self._bounds)

    def get(self, key: Any) -> bytes | None:
        """Return the row of a key."""
        return self._own(key, self._database.get(self._keys.encode(key)))

    def get_all(self, keys: list[Any], at: RowSnapshot | None = None) -> list[bytes | None]:
        """Return the rows of some keys, now or in a snapshot."""
        rows = (at or self._database).get_all(self._keys.encode_all(keys))
        return [self._own(key, row) for key, row in zip(keys, rows, strict=True)]

    def _own(self, key: Any, row: bytes | None) -> bytes | None:
        """Return the row of a key, which may be in a bucket."""
        if row is None or not is_bucket(row):
            return row
        return next((inner for known, inner in self._bucket(row) if known == key), None)

    def items(self) -> Iterator[tuple[Any, bytes]]:
        """Yield all keys and their rows."""
        with decoding(str(self.section.id)):
            for row_key, row in self._database.scan(*self._bounds):
                if is_bucket(row):
                    yield from self._bucket(row)
                else:
                    yield KeyCodec.decode(row_key), row

    def sections(self) -> Iterator[Section]:
        """Yield all rows as sections of a file."""
        return sections_of(self._database, self.number, self.section)

    def put(self, keys: list[Any], rows: Iterable[bytes], changes: Changes) -> None:
        """Add the rows of some keys to the changes."""
        self._put(keys, self._keys.encode_all(keys), rows, changes)

    def delete(self, keys: list[Any], changes: Changes) -> None:
        """Add the deletion of the rows of some keys to the changes."""
        self._delete(keys, self._keys.encode_all(keys), changes)

    def put_chunk(self, chunk: SectionChunk, changes: Changes) -> list[Any] | None:
        """Add the rows of a chunk of a file to the changes, without decoding; return its keys.

        Return None if that is not possible: the result depends on existing rows, or whole columns
        are pickled.
        """
        width = 2 if self.section.namespaced else 1
        if chunk.op not in _WHOLE or any(c.codec is Codec.PICKLE for c in chunk.columns[width:]):
            return None
        with decoding(str(self.section.id)):
            columns = [_PLAIN.decode(column) for column in chunk.columns[:width]]
            keys = columns[0] if width == 1 else list(zip(*columns, strict=True))
            row_keys = self._keys.encode_all(keys)
            rows = _rows_of(chunk) if chunk.op is not Op.DELETE else [b""] * len(keys)
            if not len(keys) == len(rows) == chunk.count:
                message = f"{len(keys)} keys and {len(rows)} entries, not {chunk.count}"
                raise ValueError(message)
        if chunk.clipped:
            ours = [chunk.first <= KeyCodec.group_of(row_key) <= chunk.last for row_key in row_keys]
            keys, row_keys, rows = (list(compress(part, ours)) for part in (keys, row_keys, rows))
        if chunk.op is Op.DELETE:
            self._delete(keys, row_keys, changes)
        else:
            self._put(keys, row_keys, rows, changes)
        return keys

    def _put(
        self, keys: list[Any], row_keys: list[bytes], rows: Iterable[bytes], changes: Changes
    ) -> None:
        if not need_buckets(keys, row_keys):
            changes.update(zip(row_keys, rows, strict=True))
            return
        for key, row_key, row in zip(keys, row_keys, rows, strict=True):
            if needs_bucket(key, row_key):
                others = self._others(key, row_key, changes)
                changes[row_key] = encode_bucket([*others, (key, row)], self.section.namespaced)
            else:
                changes[row_key] = row

    def _delete(self, keys: list[Any], row_keys: list[bytes], changes: Changes) -> None:
        for key, row_key in zip(keys, row_keys, strict=True):
            others = self._others(key, row_key, changes) if needs_bucket(key, row_key) else []
            kept = encode_bucket(others, self.section.namespaced) if others else None
            changes[row_key] = kept

    def _others(self, key: Any, row_key: bytes, changes: Changes) -> list[tuple[Any, bytes]]:
        """Return the other keys of a row, with pending changes applied."""
        row = changes[row_key] if row_key in changes else self._database.get(row_key)
        return [(known, inner) for known, inner in self._bucket(row) if known != key]

    def _bucket(self, row: bytes | None) -> list[tuple[Any, bytes]]:
        with decoding(str(self.section.id)):
            return bucket_items(row, self.section.namespaced)


class DeclaredState:
    """A state that the job has declared: its entries in memory and its rows in the database.

    Attributes:
        rows: None while no database is open.
    """

    def __init__(self, table: Table[Any], budget: Budget) -> None:
        """Read the entries of the table from the rows."""
        self.table = table
        self.rows: StateRows | None = None
        self._codec = RowCodec(table)
        self._decode = self._codec.decode
        self._budget = budget
        self._row_bytes = 32.0
        self._blocks = 0
        #: how many entries records could have read in the sample block, and did; and whether these
        #: were so many that they are read together
        self._sampled = self._reads = 0
        self._ahead = False
        self.entries = CachedEntries(table.dirty, self._read, self._items)
        table.entries = self.entries
        budget.join(self)

    def save(self, keys: Collection[Any], changes: Changes) -> bool:
        """Add the entries of keys to the changes; keys without an entry in memory are deleted.

        Entries are converted to their declared types. Return whether a row has pickled values.
        """
        assert self.rows is not None
        self.entries.rows_written()
        here = self.entries.in_memory
        puts = [key for key in keys if key in here]
        noted: Changes = {}
        if puts:
            self.rows.put(puts, encode_entries(self.table, puts, self._encode), noted)
        if len(puts) < len(keys):
            self.rows.delete([key for key in keys if key not in here], noted)
        changes.update(noted)
        return any(row is not None and is_pickled(row, self.table.kind) for row in noted.values())

    def migrated(self, rows: StateRows) -> Iterator[Changes]:
        """Yield all rows of the state in its declared types, in batches."""
        scratch = self.table.having({})
        # NB: read all first: if one cannot be read, nothing must change.
        for section in rows.sections():
            load_section(scratch, section, None)
            scratch.entries.clear()
        for section in rows.sections():
            keys = load_section(scratch, section, None)
            changes: Changes = {}
            rows.put(keys, self._encode([scratch.entries[key] for key in keys]), changes)
            yield changes
            scratch.entries.clear()

    def _encode(self, entries: list[Any]) -> list[bytes]:
        """Return the rows of some entries."""
        rows = self._codec.encode_all(entries)
        self._row_bytes = sum(map(len, rows)) / len(rows)
        return rows

    def taken(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the entries of these keys that are in memory."""
        here = partial(dict.get, self.entries)
        found = ((key, here(key)) for key in keys)
        return {key: entry for key, entry in found if entry is not None}

    def reader(self, at: RowSnapshot) -> Callable[[list[Any]], list[Any]]:
        """Return a function that reads entries from a snapshot; None for a missing entry."""
        rows = self.rows
        assert rows is not None

        return lambda keys: self._decoded_all(rows.get_all(keys, at))

    def read_ahead(self, keys: list[Any]) -> None:
        """Read the entries of the keys of a block of records together, if they will be used.

        Nothing is read for a sample of the blocks. It shows whether functions still use the state.
        """
        missing = self.entries.missing(keys)
        if len(missing) < _LEAST_AHEAD:
            return
        if self._sampled:
            self._ahead = 2 * self._reads >= self._sampled
            self._sampled = 0
        self._blocks += 1
        if self._blocks % _SAMPLE == 1:
            self._sampled, self._reads = len(missing), 0
        elif self._ahead and self.rows is not None:
            self.entries.put_ahead(missing, self._decoded_all(self.rows.get_all(missing)))

    @property
    def has_many(self) -> bool:
        """Return whether more than a few entries are in memory."""
        return len(self.entries.in_memory) > _FEW

    @property
    def has_changed_much(self) -> bool:
        """Return whether there are so many changes that they must be written to the database."""
        return len(self.table.dirty) > min(_MOST_CHANGED, self._most_entries // 2)

    def change_bytes(self, average: float) -> float:
        """Estimate the size of a changed entry in a delta; ``average``: that of all states.

        The average includes keys, rows do not. A delta has only the changed part of lists and maps.
        """
        return average if self.table.kind in ("list", "map") else max(average, self._row_bytes)

    @property
    def _most_entries(self) -> int:
        """Return the number of entries that fit into this state's share of the memory."""
        return int(self._budget.share / (_ENTRY_BYTES + _OBJECT_BYTES * self._row_bytes))

    def limit_memory(self) -> None:
        """Evict entries beyond this state's share of the memory."""
        self.entries.limit_to(self._most_entries)

    def _read(self, key: Any) -> Any:
        self._reads += 1
        row = None if self.rows is None else self.rows.get(key)
        return None if row is None else self._decoded(row)

    def _decoded(self, row: bytes) -> Any:
        try:
            return self._decode(row)
        except Exception as error:
            raise undecodable(str(self.table.id), error) from error

    def _decoded_all(self, rows: list[bytes | None]) -> list[Any]:
        found = [row for row in rows if row is not None]
        try:
            entries = iter(self._codec.decode_all(found) if found else ())
        except Exception:
            # the row that cannot be decoded is named
            entries = map(self._decoded, found)
        return [None if row is None else next(entries) for row in rows]

    def _items(self) -> Iterator[tuple[Any, Any]]:
        with decoding(str(self.table.id)):
            for key, row in () if self.rows is None else self.rows.items():
                yield key, self._decode(row)


def _rows_of(chunk: SectionChunk) -> list[bytes]:
    if chunk.op is Op.PUT:
        return list(split_column(chunk.columns[-1]))
    lengths = _PLAIN.decode(chunk.columns[-2 if chunk.op is Op.LIST_REPLACE else -3])
    if not set(map(type, lengths)) <= {int} or min(lengths, default=0) < 0:
        message = f"{chunk.op.name} has lengths that are no lengths"
        raise ValueError(message)
    ends = accumulate(lengths)
    parts = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    if chunk.op is Op.LIST_REPLACE:
        return list_rows(chunk.columns[-1], parts)
    return map_rows(chunk.columns[-2], chunk.columns[-1], parts)
