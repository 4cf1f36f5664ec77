"""Bases that refer to tables of a database: the contents of their files, and how to read them.

A base of the RocksDB backend does not hold the state itself. It refers to the tables of the
database. RocksDB never changes a table once it is written, so a base copies only the new tables and
shares the others with the bases before it. (The changes of an epoch are a delta like any other; see
`holdfast.state.format.head`.)

- A table is a state file (`holdfast.state.format.files`) with one blob, the table as RocksDB wrote
  it. So it is checked like every other file when it is read, copied or verified.
- The base is a state file with an additional blob, the index: the names of the tables in the
  database, and RocksDB's own list of them (its manifest). Its first sections describe the states in
  the tables, by number, and have no chunks. The sections after them are applied to the tables.

A backend that keeps state elsewhere reads the tables as sections: see
`holdfast.state.backends.head_files`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from holdfast.state.errors import StateCorruptionError, decoding
from holdfast.state.format.files import BlobId, Section, StateFile, encode_file
from holdfast.state.format.head import FileRef, Head
from holdfast.state.format.stored_files import read_file
from holdfast.state.storage.directory import ReadableStorage, StateStorage

#: the suffix of the name of a table's state file
TABLE: Final = ".table"
#: no operator has such a uid
_INDEX: Final[BlobId] = ("\0tables", "index")
_BLOB: Final[BlobId] = ("\0tables", "table")
#: RocksDB's names: of a table, and of the files that list all tables
_TABLE_NAME: Final = re.compile(r"\d{1,20}\.sst", re.ASCII)
_LIST_NAME: Final = re.compile(r"CURRENT|MANIFEST-\d{1,20}", re.ASCII)


#: returns the key groups of a state to read; None for all of them
Wanted = Callable[[Section], range | None]


class TableIndex(msgspec.Struct, frozen=True):
    """The data that is needed to open tables as a database.

    Attributes:
        tables: the names of the tables in the database, in the order of `Head.tables`.
        files: the other files of the database, by name.
        states: the number of states.
        pickled: the numbers of the states that contain pickled data.

    Invariant: the names are names of RocksDB's tables and of its list of tables, each once. So a
    database that is created from it has no other file, and RocksDB reads no other directory.
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
            message = f"the states {self.pickled} are listed as pickled; there are {self.states}"
            raise ValueError(message)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(TableIndex).decode


def with_index(file: StateFile, index: TableIndex) -> StateFile:
    """Return a base that refers to tables."""
    return replace(file, blobs={**file.blobs, _INDEX: _encode(index)})


def index_of(file: StateFile, head: Head) -> tuple[TableIndex, Sequence[Section], StateFile]:
    """Return the index of a base that refers to tables, its states, and the base without both.

    Raises:
        StateCorruptionError: if it has no index, or the index does not match the head's tables.
    """
    data = file.blobs.get(_INDEX)
    with decoding(f"state file {head.files[0].name!r}"):
        index = _decode(b"" if data is None else data)
        if len(index.tables) != len(head.tables) or not 0 <= index.states <= len(file.sections):
            message = (
                f"its index has {len(index.tables)} tables and {index.states} states; the head has "
                f"{len(head.tables)} tables, and the file {len(file.sections)} sections"
            )
            raise ValueError(message)
    blobs = {blob_id: blob for blob_id, blob in file.blobs.items() if blob_id != _INDEX}
    states, others = file.sections[: index.states], file.sections[index.states :]
    return index, states, StateFile(others, blobs)


def write_table(storage: StateStorage, name: str, table: Path, durable: bool) -> int:
    """Write a table of a database as a state file; return the size of the file."""
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
        # NB: another process may do the same. A file under its final name is always complete.
        draft = directory / f".{ref.name}.{uuid.uuid4().hex}.tmp"
        draft.write_bytes(read_table(storage, ref))
        draft.replace(directory / ref.name)
        return ref.size

    with ThreadPoolExecutor(threads, "holdfast-tables") as pool:
        return sum(pool.map(fetch, refs))
