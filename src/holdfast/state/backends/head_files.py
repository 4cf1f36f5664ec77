"""Reads the files of a head as sections, no matter which backend wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.state.format.files import Section, StateFile
from holdfast.state.format.head import FileRef, Head
from holdfast.state.format.stored_files import read_file
from holdfast.state.format.table_files import TableIndex, Wanted, index_of
from holdfast.state.storage.directory import ReadableStorage
from holdfast.state.types.serializers import Loads
from holdfast.state.types.unpickling import unpickle


def read_head(
    storage: ReadableStorage, head: Head, start: int = 0, wanted: Wanted | None = None
) -> Iterator[tuple[FileRef, StateFile]]:
    """Yield the files of a head in order, from a given one on, each with its contents.

    The contents of the tables of a base come first, in pieces of bounded size. ``wanted`` returns
    which key groups of a state are needed; tables without any of them are not read. A storage
    that does not allow pickled values has a method ``refuse``.
    """
    for ref in head.files[start:]:
        file = read_file(storage, ref.name, ref.size)
        if ref.since < 0 and head.tables:
            index, states, file = index_of(file, head)
            for section in read_tables(storage, head, index, enumerate(states), wanted):
                yield ref, StateFile((section,))
        yield ref, file


def read_tables(
    storage: ReadableStorage,
    head: Head,
    index: TableIndex,
    states: Iterable[tuple[int, Section]],
    wanted: Wanted | None = None,
    loads: Loads = unpickle,
) -> Iterator[Section]:
    """Yield the rows of some states in tables, with their numbers, in sections of bounded size.

    ``wanted``: the key groups of a state to read. ``loads`` unpickles pickled keys.
    """
    # NB: imported late, so that a job without RocksDB never loads it.
    from holdfast.state.backends.rocksdb.reading import open_tables, sections_of, span_of

    refuse = getattr(storage, "refuse", None)
    parts = [(number, state, wanted(state) if wanted else None) for number, state in states]
    parts = [part for part in parts if part[2] is None or part[2]]
    if parts:
        spans = [span_of(number, key_groups) for number, _, key_groups in parts]
        with open_tables(storage, head, index, spans) as database:
            for number, state, key_groups in parts:
                yield from sections_of(database, number, state, refuse, key_groups, loads)
