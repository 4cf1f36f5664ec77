"""`LocalState`: a database of the host, with a record of the head that it represents."""

from __future__ import annotations

from collections.abc import Container
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from typing import Final

import msgspec

from holdfast.state.backends.rocksdb.capture import TableDraft
from holdfast.state.backends.rocksdb.database import Budget, Changes, Database, RowSnapshot
from holdfast.state.backends.rocksdb.rows import state_prefix
from holdfast.state.backends.rocksdb.states import StateRows
from holdfast.state.format.files import BlobId, Section, StateFile, decode_file, encode_file
from holdfast.state.format.head import Head
from holdfast.state.names import StateId

#: number of the rows of the database itself; no state has it
_OWN: Final = state_prefix(0xFFFF)
_STANDING: Final = _OWN + b"head"
_STATES: Final = _OWN + b"states"
_BLOB: Final = _OWN + b"blob"
_BLOBS_END: Final = _OWN + b"bloc"
_SEAL: Final = 32
#: maximum size of a batch of rows, in bytes
_STEP_BYTES: Final = 1 << 20


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """The head that a database represents; an empty head: none.

    Attributes:
        tables: the names of the head's tables in the database.
        pickled: the states with pickled values.
    """

    head: Head = Head()
    tables: tuple[str, ...] = ()
    pickled: tuple[StateId, ...] = ()


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_standing: Final = msgspec.msgpack.Decoder(Standing).decode
_decode_blob_id: Final = msgspec.msgpack.Decoder(tuple[str, str]).decode


class LocalState:
    """An open database: states, blobs and standing, which change atomically."""

    def __init__(self, path: Path, budget: Budget, key: bytes) -> None:
        """Open the database, or create it.

        If its standing is not sealed with the key, it represents nothing.
        """
        self._key = key
        self._database = Database(path, budget)
        sealed, states = self._database.get(_STANDING), self._database.get(_STATES)
        self.standing = self._unseal(sealed, states)
        sections = () if states is None else decode_file(states, str(path)).sections
        self._rows = {
            section.id: StateRows(self._database, number, section)
            for number, section in enumerate(sections)
        }

    @property
    def states(self) -> list[StateRows]:
        """Return the states, by number."""
        return list(self._rows.values())

    def rows(self, section: Section) -> StateRows:
        """Return the rows of a state; they may have been written with another section."""
        known = self._rows.get(section.id)
        if known is None:
            known = StateRows(self._database, len(self._rows), section)
            self._rows[section.id] = known
        return known

    def blobs(self) -> dict[BlobId, bytes]:
        """Return all blobs."""
        found = self._database.scan(_BLOB, _BLOBS_END)
        return {_decode_blob_id(key[len(_BLOB) :]): data for key, data in found}

    def put_blob(self, blob_id: BlobId, data: bytes | None, changes: Changes) -> None:
        """Add a blob to the changes; None deletes it."""
        changes[_BLOB + _encode(blob_id)] = data

    def write(self, changes: Changes, standing: Standing | None = None) -> None:
        """Write changes and the new standing; by default, the database then represents nothing.

        Many changes are written in several steps, since RocksDB makes one table of each batch, no
        matter how large. Until the last step the database represents nothing.
        """
        parts = _parts(changes)
        if len(parts) > 1:
            self._write(parts[0], Standing())
            for part in parts[1:]:
                self._database.write(part)
        self._write(parts[0] if len(parts) == 1 else {}, standing or Standing())

    def _write(self, changes: Changes, standing: Standing) -> None:
        self.standing = standing
        sections = [rows.section for rows in self._rows.values()]
        states = changes[_STATES] = encode_file(StateFile(sections))
        encoded = _encode(self.standing)
        changes[_STANDING] = self._seal(encoded, states) + encoded
        self._database.write(changes)

    def _seal(self, encoded: bytes, states: bytes) -> bytes:
        """Return a seal of a standing and the states, which can be made only with the job's key."""
        seal = blake2b(len(encoded).to_bytes(8), key=self._key, digest_size=_SEAL, person=b"head")
        seal.update(encoded)
        seal.update(states)
        return seal.digest()

    def _unseal(self, sealed: bytes | None, states: bytes | None) -> Standing:
        if sealed is None or states is None:
            return Standing()
        seal, encoded = sealed[:_SEAL], sealed[_SEAL:]
        proven = compare_digest(seal, self._seal(encoded, states))
        return _decode_standing(encoded) if proven else Standing()

    def snapshot(self) -> RowSnapshot:
        """Return a snapshot of all rows."""
        return self._database.snapshot()

    def draft_tables(self, directory: Path, pickled: Container[StateId]) -> TableDraft:
        """Flush everything to tables, and link them into a new directory."""
        self._database.save_to(directory)
        numbers = [rows.number for state, rows in self._rows.items() if state in pickled]
        return TableDraft(directory, len(self._rows), numbers)

    def compact(self) -> None:
        """Rewrite all tables without deleted and overwritten rows."""
        self._database.compact()

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _parts(changes: Changes) -> list[Changes]:
    """Divide changes into parts of bounded size; yield at least one."""
    parts: list[Changes] = [{}]
    size = 0
    for key, row in changes.items():
        if size > _STEP_BYTES:
            parts.append({})
            size = 0
        parts[-1][key] = row
        size += len(key) + len(row or b"")
    return parts
