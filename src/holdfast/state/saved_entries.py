"""Reading the entries of a state from the files of a head, without the job's code.

Values are plain values (`holdfast.state.types.plain_values`). The first section of a state, or the
tables of a database, are returned chunk by chunk. Only keys that a later section changes are held
back until it has been applied, so memory use is limited to the deltas of a head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from holdfast.state.backends.head_files import read_tables
from holdfast.state.errors import decoding
from holdfast.state.format.file_header import Op
from holdfast.state.format.files import Section, SectionChunk
from holdfast.state.format.head import Head
from holdfast.state.format.stored_files import read_file
from holdfast.state.format.table_files import index_of
from holdfast.state.live.sections import check_columns, sieve
from holdfast.state.live.tables import Columns, Table, make_table
from holdfast.state.names import StateId
from holdfast.state.storage.directory import ReadableStorage
from holdfast.state.types.plain_values import plain_values
from holdfast.state.types.serializers import Loads, decode_untyped
from holdfast.state.types.unpickling import unpickle

Wanted = Callable[[Section], bool]

#: operations that set the complete entry of a key
_WHOLE: Final = (Op.PUT, Op.LIST_REPLACE, Op.MAP_REPLACE)


class Entries(NamedTuple):
    """A batch of entries of a state, each with its key: (key, namespace) if it is namespaced.

    An entry is a value or an accumulator, a list or a dict. With a time-to-live, values are pairs.
    """

    keys: list[Any]
    values: list[Any]


class _KeyDict(dict[str, Any]):
    """A record that is the key of a map, and therefore never changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


class _KeyList(list[Any]):
    """A list that is a map key, or a part of one."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def key_of(value: Any) -> Any:
    """Return a hashable form of a plain value, which may be or contain dicts and lists."""
    kind = value.__class__
    if kind is dict:
        return _KeyDict((name, key_of(part)) for name, part in value.items())
    if kind is list:
        return _KeyList(map(key_of, value))
    return tuple(map(key_of, value)) if kind is tuple else value


def read_entries(
    storage: ReadableStorage,
    head: Head,
    state: StateId,
    key_groups: range | None = None,
    loads: Loads = unpickle,
) -> Iterator[Entries]:
    """Yield the entries of a state in batches, every key once.

    ``key_groups`` limits the entries to these key groups. ``loads`` unpickles pickled values.
    """

    def wanted(section: Section) -> bool:
        return state == (section.operator, section.state, section.namespaced)

    reader = _Reader(state, loads)
    first: Iterable[Section] = ()
    later = list(file_sections(storage, head, wanted, key_groups))
    if head.tables:
        first = table_sections(storage, head, wanted, key_groups, loads)
    elif later and all(chunk.op in _WHOLE for chunk in later[0].chunks):
        first, later = later[:1], later[1:]
    changes = [(section, chunk) for section in later for chunk in section.chunks]
    touched = {key for section, chunk in changes for key in reader.keys(section, chunk)}
    for section in first:
        for chunk in section.chunks:
            yield reader.take(chunk.op, *reader.decode(section, chunk), touched)
    for section, chunk in changes:
        reader.apply(section, chunk)
    yield reader.rest()


def section_entries(section: Section) -> Iterator[Entries]:
    """Yield the entries of a section that contains complete entries only."""
    reader = _Reader(section.id, unpickle)
    for chunk in section.chunks:
        yield reader.take(chunk.op, *reader.decode(section, chunk), set())


class Amount(NamedTuple):
    """The number of entries of a state, and the bytes of their columns in the files."""

    entries: int = 0
    bytes: int = 0


def count_entries(
    storage: ReadableStorage, head: Head, loads: Loads = unpickle
) -> dict[StateId, Amount]:
    """Return the number of entries and bytes of each state, without decoding values.

    For a state with sections in files, the keys are held in memory meanwhile; states that are only
    in tables need no memory.
    """
    later: dict[StateId, list[Section]] = {}
    counted: Counter[StateId] = Counter()
    keys: dict[StateId, set[Any]] = {}
    sizes: Counter[StateId] = Counter()
    for section in file_sections(storage, head, _any):
        later.setdefault(section.id, []).append(section)
    for section in table_sections(storage, head, _any, loads=loads):
        state = section.id
        sizes[state] += _size(section)
        if state in later:
            _count(section, keys.setdefault(state, set()), loads)
        else:
            counted[state] += sum(chunk.count for chunk in section.chunks)
    for state, sections in later.items():
        found = keys.setdefault(state, set())
        for section in sections:
            sizes[state] += _size(section)
            _count(section, found, loads)
    counted.update({state: len(found) for state, found in keys.items()})
    return {state: Amount(counted[state], size) for state, size in sizes.items()}


def _any(section: Section) -> bool:
    return True


def _size(section: Section) -> int:
    return sum(len(column.data) for chunk in section.chunks for column in chunk.columns)


def _count(section: Section, keys: set[Any], loads: Loads) -> None:
    """Apply a section to the set of keys of a state."""
    reader = _Reader(section.id, loads)
    for chunk in section.chunks:
        found = reader.keys(section, chunk)
        if chunk.clipped:
            with decoding(str(section.id)):
                found, _ = sieve(section, chunk, found, [])
        if chunk.op is Op.DELETE:
            keys.difference_update(found)
        else:
            keys.update(found)


def file_sections(
    storage: ReadableStorage, head: Head, wanted: Wanted, key_groups: range | None = None
) -> Iterator[Section]:
    """Yield the sections in the files of a head, in their order, without its tables."""
    for ref in head.files:
        for section in filter(wanted, read_file(storage, ref.name, ref.size).sections):
            clipped = section if key_groups is None else section.clip(key_groups)
            if clipped.chunks:
                yield clipped


def table_sections(
    storage: ReadableStorage,
    head: Head,
    wanted: Wanted,
    key_groups: range | None = None,
    loads: Loads = unpickle,
) -> Iterator[Section]:
    """Yield the contents of the tables of a head, in sections of bounded size."""
    if head.tables:
        base = head.files[0]
        index, states, _ = index_of(read_file(storage, base.name, base.size), head)
        numbered = [pair for pair in enumerate(states) if wanted(pair[1])]
        if numbered:
            yield from read_tables(storage, head, index, numbered, lambda _: key_groups, loads)


class _Reader:
    """Decodes the chunks of a state, and holds back entries that later chunks change."""

    def __init__(self, state: StateId, loads: Loads) -> None:
        self._state = state
        self._loads = loads
        self._table: Table[Any] | None = None

    def keys(self, section: Section, chunk: SectionChunk) -> list[Any]:
        """Return all keys of a chunk, including those outside of its key groups."""
        with decoding(str(section.id)):
            columns = [
                decode_untyped(c, self._loads) for c in chunk.columns[: _key_columns(section)]
            ]
            keys = list(zip(*columns, strict=True)) if section.namespaced else columns[0]
            if len(keys) != chunk.count:
                message = f"there are {len(keys)} keys, not {chunk.count}"
                raise ValueError(message)
            set(keys)  # raises if one of them cannot be a key
        return keys

    def decode(self, section: Section, chunk: SectionChunk) -> tuple[list[Any], Columns]:
        """Return the keys of a chunk that are in its key groups, and their columns."""
        keys = self.keys(section, chunk)
        with decoding(str(section.id)):
            return self._decode(section, chunk, keys)

    def _decode(
        self, section: Section, chunk: SectionChunk, keys: list[Any]
    ) -> tuple[list[Any], Columns]:
        if self._table is None:
            types = (None,) * len(section.types)
            self._table = make_table(*self._state[:2], section.kind, types, False, section.expires)
        serializers = self._table.column_serializers(chunk.op)
        readers = {
            id(serializer): schema
            for serializer, schema in zip(self._table.serializers, section.types, strict=True)
        }
        columns = [
            plain_values(readers.get(id(serializer)), column, self._loads)
            for serializer, column in zip(
                serializers, chunk.columns[_key_columns(section) :], strict=True
            )
        ]
        check_columns(chunk, keys, columns)
        if section.kind == "map" and columns:
            columns[1] = list(map(key_of, columns[1]))
        return sieve(section, chunk, keys, columns) if chunk.clipped else (keys, columns)

    def take(self, op: Op, keys: list[Any], columns: Columns, touched: set[Any]) -> Entries:
        """Return complete entries, except those whose keys are in ``touched``."""
        assert self._table is not None
        if op is Op.PUT and not touched:
            return Entries(keys, columns[0])
        with decoding(str(self._state)):
            self._table.apply(op, keys, columns)
            entries = self._table.entries
            ready = [key for key in keys if key not in touched] if touched else keys
            return Entries(ready, list(map(entries.pop, ready)))

    def apply(self, section: Section, chunk: SectionChunk) -> None:
        """Apply a chunk to the entries that were held back."""
        keys, columns = self.decode(section, chunk)
        assert self._table is not None
        with decoding(str(section.id)):
            self._table.apply(chunk.op, keys, columns)

    def rest(self) -> Entries:
        """Return the entries that were held back."""
        entries = {} if self._table is None else self._table.entries
        return Entries(list(entries), list(entries.values()))


def _key_columns(section: Section) -> int:
    return 2 if section.namespaced else 1
