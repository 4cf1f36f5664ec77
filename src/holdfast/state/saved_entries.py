"""The entries of a state in a chain of files, without the job's code.

Values are plain ones (`holdfast.state.plain_values`). What is in the first section of a state, or
in the tables of a database, is handed out chunk by chunk. Only keys that a later section says
something about wait for it, so that what is in memory is no more than the deltas of a chain.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from holdfast.state.chain import Chain
from holdfast.state.errors import decoding
from holdfast.state.files import Chunk, Op, Section
from holdfast.state.interface import read_file
from holdfast.state.plain_values import plain_values
from holdfast.state.sections import check_columns, sieve
from holdfast.state.serializers import Loads, decode_untyped
from holdfast.state.storage import ReadableStorage
from holdfast.state.table_files import index_of, read_tables
from holdfast.state.tables import Columns, Table, make_table

__all__ = [
    "Amount",
    "Entries",
    "StateId",
    "count_entries",
    "file_sections",
    "key_of",
    "read_entries",
    "section_entries",
    "table_sections",
]

Wanted = Callable[[Section], bool]

#: operations that say all there is of a key
_WHOLE: Final = (Op.PUT, Op.LIST_REPLACE, Op.MAP_REPLACE)


class StateId(NamedTuple):
    """A keyed state of a job."""

    operator: str
    name: str
    namespaced: bool = False


class Entries(NamedTuple):
    """Some entries of a state, each with its key: (key, namespace) if it is namespaced.

    An entry is a value or an accumulator, a list or a dict. What has a time-to-live is in pairs.
    """

    keys: list[Any]
    values: list[Any]


class _KeyDict(dict[str, Any]):
    """A record that is the key of a map; nobody changes it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


class _KeyList(list[Any]):
    """A list that is a key, or in a key, of a map."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


def key_of(value: Any) -> Any:
    """Return a plain value, which may be or hold dicts and lists, as one that can be hashed."""
    kind = value.__class__
    if kind is dict:
        return _KeyDict((name, key_of(part)) for name, part in value.items())
    if kind is list:
        return _KeyList(map(key_of, value))
    return tuple(map(key_of, value)) if kind is tuple else value


def read_entries(
    storage: ReadableStorage,
    chain: Chain,
    state: StateId,
    key_groups: range | None = None,
    loads: Loads = pickle.loads,
) -> Iterator[Entries]:
    """Yield the entries of a state, some at a time, every key once.

    ``key_groups``: only theirs. ``loads`` unpickles what is pickled.
    """

    def wanted(section: Section) -> bool:
        return state == (section.operator, section.state, section.namespaced)

    reader = _Reader(state, loads)
    first: Iterable[Section] = ()
    later = list(file_sections(storage, chain, wanted, key_groups))
    if chain.tables:
        first = table_sections(storage, chain, wanted, key_groups, loads)
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
    """Yield the entries of a section that holds whole ones."""
    reader = _Reader(_id(section), pickle.loads)
    for chunk in section.chunks:
        yield reader.take(chunk.op, *reader.decode(section, chunk), set())


class Amount(NamedTuple):
    """How many entries there are of a state, and the bytes of their columns in the files."""

    entries: int = 0
    bytes: int = 0


def count_entries(
    storage: ReadableStorage, chain: Chain, loads: Loads = pickle.loads
) -> dict[StateId, Amount]:
    """Return how much there is of each state; values are not decoded.

    What is in one section is counted; of states in several the keys are in memory meanwhile.
    """
    later: dict[StateId, list[Section]] = {}
    counted: Counter[StateId] = Counter()
    keys: dict[StateId, set[Any]] = {}
    sizes: Counter[StateId] = Counter()
    for section in file_sections(storage, chain, _any):
        later.setdefault(_id(section), []).append(section)
    for section in table_sections(storage, chain, _any, loads=loads):
        state = _id(section)
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


def _id(section: Section) -> StateId:
    return StateId(section.operator, section.state, section.namespaced)


def _size(section: Section) -> int:
    return sum(len(column.data) for chunk in section.chunks for column in chunk.columns)


def _count(section: Section, keys: set[Any], loads: Loads) -> None:
    """Bring the keys of a state up to date with a section."""
    reader = _Reader(_id(section), loads)
    for chunk in section.chunks:
        found = reader.keys(section, chunk)
        if chunk.clipped:
            with decoding(_place(section)):
                found, _ = sieve(section, chunk, found, [])
        if chunk.op is Op.DELETE:
            keys.difference_update(found)
        else:
            keys.update(found)


def file_sections(
    storage: ReadableStorage, chain: Chain, wanted: Wanted, key_groups: range | None = None
) -> Iterator[Section]:
    """Yield what the files of a chain say, in their order; not what is in tables below them."""
    for ref in chain.files:
        for section in filter(wanted, read_file(storage, ref.name, ref.size).sections):
            clipped = section if key_groups is None else section.clip(key_groups)
            if clipped.chunks:
                yield clipped


def table_sections(
    storage: ReadableStorage,
    chain: Chain,
    wanted: Wanted,
    key_groups: range | None = None,
    loads: Loads = pickle.loads,
) -> Iterator[Section]:
    """Yield what is in the tables below the files of a chain, in sections of bounded size."""
    if chain.tables:
        base = chain.files[0]
        index, states, _ = index_of(read_file(storage, base.name, base.size), chain)
        numbered = [pair for pair in enumerate(states) if wanted(pair[1])]
        if numbered:
            yield from read_tables(storage, chain, index, numbered, key_groups, loads)


class _Reader:
    """Decodes the chunks of a state, and keeps what it cannot hand out yet."""

    def __init__(self, state: StateId, loads: Loads) -> None:
        self._state = state
        self._loads = loads
        self._table: Table[Any] | None = None

    def keys(self, section: Section, chunk: Chunk) -> list[Any]:
        """Return the keys of a chunk, those among them that are not to count."""
        with decoding(_place(section)):
            columns = [
                decode_untyped(c, self._loads) for c in chunk.columns[: _key_columns(section)]
            ]
            keys = list(zip(*columns, strict=True)) if section.namespaced else columns[0]
            if len(keys) != chunk.count:
                message = f"there are {len(keys)} keys, not {chunk.count}"
                raise ValueError(message)
            set(keys)  # raises if one of them cannot be a key
        return keys

    def decode(self, section: Section, chunk: Chunk) -> tuple[list[Any], Columns]:
        """Return the keys of a chunk that count, and its columns."""
        keys = self.keys(section, chunk)
        with decoding(_place(section)):
            return self._decode(section, chunk, keys)

    def _decode(self, section: Section, chunk: Chunk, keys: list[Any]) -> tuple[list[Any], Columns]:
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
        """Return whole entries, but for those that something comes on top of."""
        assert self._table is not None
        if op is Op.PUT and not touched:
            return Entries(keys, columns[0])
        with decoding(f"state {self._state.name!r} of operator {self._state.operator!r}"):
            self._table.apply(op, keys, columns)
            entries = self._table.entries
            ready = [key for key in keys if key not in touched] if touched else keys
            return Entries(ready, list(map(entries.pop, ready)))

    def apply(self, section: Section, chunk: Chunk) -> None:
        """Put a chunk on top of what there is."""
        keys, columns = self.decode(section, chunk)
        assert self._table is not None
        with decoding(_place(section)):
            self._table.apply(chunk.op, keys, columns)

    def rest(self) -> Entries:
        """Return what is left."""
        entries = {} if self._table is None else self._table.entries
        return Entries(list(entries), list(entries.values()))


def _place(section: Section) -> str:
    return f"state {section.state!r} of operator {section.operator!r}"


def _key_columns(section: Section) -> int:
    return 2 if section.namespaced else 1
