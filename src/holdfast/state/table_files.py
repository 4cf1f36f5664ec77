"""Bases that lie on tables of a database: what is in their files, and how anyone reads them.

A base of the RocksDB backend does not hold the state itself. It holds what names it: the tables of
the database, which RocksDB never changes once they are written, so that a base copies those that
are new and shares the others with the bases before it. (What changes in an epoch is a delta like
any other; see `holdfast.state.chain`.)

- A table is a state file (`holdfast.state.files`) with one blob, the table as RocksDB wrote it. So
  it is checked like every other file when it is read, copied or verified.
- The base is a state file with one more blob, the index: the names that the tables have in the
  database, and RocksDB's own list of them (its manifest). Its first sections are the states in the
  tables, by number, without chunks. What comes after them lies on top of the tables.

A backend that keeps state elsewhere reads the tables as sections: `read_chain`.
"""

from __future__ import annotations

import pickle
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from holdfast.state.chain import Chain, FileRef
from holdfast.state.errors import StateCorruptionError, decoding
from holdfast.state.files import BlobId, Section, StateFile, encode_file
from holdfast.state.interface import read_file
from holdfast.state.serializers import Loads
from holdfast.state.storage import ReadableStorage, StateStorage

__all__ = [
    "TABLE",
    "TableIndex",
    "fetch_tables",
    "index_of",
    "read_chain",
    "read_tables",
    "with_index",
    "write_table",
]

#: how the name of a table's state file ends
TABLE: Final = ".table"
#: no operator has such a uid
_INDEX: Final[BlobId] = ("\0tables", "index")
_BLOB: Final[BlobId] = ("\0tables", "table")
#: RocksDB's names: of a table, and of what lists all tables
_TABLE_NAME: Final = re.compile(r"\d{1,20}\.sst", re.ASCII)
_LIST_NAME: Final = re.compile(r"CURRENT|MANIFEST-\d{1,20}", re.ASCII)


class TableIndex(msgspec.Struct, frozen=True):
    """What makes a database of tables.

    Attributes:
        tables: the names of the tables in the database, in the order of the chain's.
        files: the other files of the database, by name.
        states: how many states there are.
        pickled: in which of them there is something pickled, by number.

    Invariant: the names are those of RocksDB's tables and of its list of tables, each once. So a
    database that is made of it has no other file, and RocksDB reads no other directory.
    """

    tables: tuple[str, ...]
    files: dict[str, bytes]
    states: int
    pickled: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        strange = [name for name in self.tables if not _TABLE_NAME.fullmatch(name)]
        strange += [name for name in self.files if not _LIST_NAME.fullmatch(name)]
        if strange or len(set(self.tables)) < len(self.tables):
            message = f"{strange or self.tables!r} are not the names of a database's files"
            raise ValueError(message)
        if self.files.get("CURRENT", b"").removesuffix(b"\n").decode() not in self.files:
            message = f"the database's file 'CURRENT' names no other file: {self.files.keys()}"
            raise ValueError(message)
        if not all(0 <= number < self.states for number in self.pickled):
            message = f"there are {self.states} states, and {self.pickled} are said to be pickled"
            raise ValueError(message)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(TableIndex).decode


def with_index(file: StateFile, index: TableIndex) -> StateFile:
    """Return a base that lies on tables."""
    return replace(file, blobs={**file.blobs, _INDEX: _encode(index)})


def index_of(file: StateFile, chain: Chain) -> tuple[TableIndex, Sequence[Section], StateFile]:
    """Return the index of a base that lies on tables, its states, and the base without both.

    Raises:
        StateCorruptionError: when it has none, or one of other tables than the chain's.
    """
    data = file.blobs.get(_INDEX)
    with decoding(f"state file {chain.files[0].name!r}"):
        index = _decode(b"" if data is None else data)
        if len(index.tables) != len(chain.tables) or not 0 <= index.states <= len(file.sections):
            message = (
                f"it is of {len(index.tables)} tables and {index.states} states; the chain has "
                f"{len(chain.tables)} tables, and the file {len(file.sections)} sections"
            )
            raise ValueError(message)
    blobs = {blob_id: blob for blob_id, blob in file.blobs.items() if blob_id != _INDEX}
    states, others = file.sections[: index.states], file.sections[index.states :]
    return index, states, StateFile(others, blobs)


def write_table(storage: StateStorage, name: str, table: Path, durable: bool) -> int:
    """Write a table of a database as a state file; return its size."""
    data = encode_file(StateFile((), {_BLOB: table.read_bytes()}), name, compress=False)
    storage.write(name, data, durable=durable)
    return len(data)


def read_table(storage: ReadableStorage, ref: FileRef) -> bytes | memoryview:
    """Return a table as the database wrote it."""
    data = read_file(storage, ref.name, ref.size).blobs.get(_BLOB)
    if data is None:
        message = f"state file {ref.name!r} cannot be used: it is not the table of a database"
        raise StateCorruptionError(message)
    return data


def fetch_tables(
    storage: ReadableStorage, refs: Iterable[FileRef], directory: Path, threads: int = 1
) -> int:
    """Read tables into a directory, under the names of their state files; return the bytes read."""

    def fetch(ref: FileRef) -> int:
        # NB: another process may do the same; what is there under that name is always whole.
        draft = directory / f".{ref.name}.{uuid.uuid4().hex}.tmp"
        draft.write_bytes(read_table(storage, ref))
        draft.replace(directory / ref.name)
        return ref.size

    with ThreadPoolExecutor(threads, "holdfast-tables") as pool:
        return sum(pool.map(fetch, refs))


def read_chain(
    storage: StateStorage, chain: Chain, start: int = 0
) -> Iterator[tuple[FileRef, StateFile]]:
    """Yield the files of a chain from one on, in their order, each with its contents.

    What is in the tables of the base comes before it, in files of bounded size. A storage that
    gives out nothing pickled says so by a method ``refuse``.
    """
    for ref in chain.files[start:]:
        file = read_file(storage, ref.name, ref.size)
        if ref.since < 0 and chain.tables:
            index, states, file = index_of(file, chain)
            for section in read_tables(storage, chain, index, enumerate(states)):
                yield ref, StateFile((section,))
        yield ref, file


def read_tables(
    storage: ReadableStorage,
    chain: Chain,
    index: TableIndex,
    states: Iterable[tuple[int, Section]],
    key_groups: range | None = None,
    loads: Loads = pickle.loads,
) -> Iterator[Section]:
    """Yield what is in tables of some states, each with its number, in sections of bounded size.

    ``key_groups``: only theirs. ``loads`` unpickles keys that are pickled.
    """
    # Late, so that a job without RocksDB never loads it.
    from holdfast.state.rocksdb_reading import open_tables, sections_of

    refuse = getattr(storage, "refuse", None)
    with open_tables(storage, chain, index) as database:
        for number, state in states:
            yield from sections_of(database, number, state, refuse, key_groups, loads)
