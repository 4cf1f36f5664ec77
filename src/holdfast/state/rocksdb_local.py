"""`LocalState`: a database of the host, and the chain that it says it stands for."""

from __future__ import annotations

from collections.abc import Container
from hashlib import blake2b
from hmac import compare_digest
from pathlib import Path
from typing import Final

import msgspec

from holdfast.state.chain import Chain
from holdfast.state.files import BlobId, Section, StateFile, decode_file, encode_file
from holdfast.state.rocksdb_capture import TableDraft
from holdfast.state.rocksdb_database import Budget, Changes, Database, Snapshot
from holdfast.state.rocksdb_rows import state_prefix
from holdfast.state.rocksdb_state import StateRows

__all__ = ["Head", "LocalState", "StateId", "id_of"]

#: operator, state, namespaced
StateId = tuple[str, str, bool]

#: rows of the database itself; no state has that number
_OWN: Final = state_prefix(0xFFFF)
_HEAD: Final = _OWN + b"head"
_STATES: Final = _OWN + b"states"
_BLOB: Final = _OWN + b"blob"
_BLOBS_END: Final = _OWN + b"bloc"
_SEAL: Final = 32


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What a database stands for; an empty chain: for nothing.

    Attributes:
        tables: the names that the tables of the chain have in the database.
        pickled: the states of which something is pickled.
    """

    chain: Chain = Chain()
    tables: tuple[str, ...] = ()
    pickled: tuple[StateId, ...] = ()


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_head: Final = msgspec.msgpack.Decoder(Head).decode
_decode_blob_id: Final = msgspec.msgpack.Decoder(tuple[str, str]).decode


class LocalState:
    """An open database with its states, its blobs and its head, which change in one step."""

    def __init__(self, path: Path, budget: Budget, key: bytes) -> None:
        """Open it, or make it.

        One whose head is not sealed with the key stands for nothing.
        """
        self._key = key
        self._database = Database(path, budget)
        head, states = self._database.get(_HEAD), self._database.get(_STATES)
        self.head = self._unseal(head, states)
        sections = () if states is None else decode_file(states, str(path)).sections
        self._rows = {
            id_of(section): StateRows(self._database, number, section)
            for number, section in enumerate(sections)
        }

    @property
    def states(self) -> list[StateRows]:
        """Return the states, by number."""
        return list(self._rows.values())

    def rows(self, head: Section) -> StateRows:
        """Return the rows of a state; they may be written under another head."""
        known = self._rows.get(id_of(head))
        if known is None:
            known = StateRows(self._database, len(self._rows), head)
            self._rows[id_of(head)] = known
        return known

    def blobs(self) -> dict[BlobId, bytes]:
        """Return all blobs."""
        found = self._database.scan(_BLOB, _BLOBS_END)
        return {_decode_blob_id(key[len(_BLOB) :]): data for key, data in found}

    def put_blob(self, blob_id: BlobId, data: bytes | None, changes: Changes) -> None:
        """Note a blob; None: it is to go."""
        changes[_BLOB + _encode(blob_id)] = data

    def write(self, changes: Changes, head: Head | None = None) -> None:
        """Write changes, with what the database then stands for: nothing, unless it is said."""
        self.head = head or Head()
        heads = [rows.head for rows in self._rows.values()]
        states = changes[_STATES] = encode_file(StateFile(heads))
        encoded = _encode(self.head)
        changes[_HEAD] = self._seal(encoded, states) + encoded
        self._database.write(changes)

    def _seal(self, head: bytes, states: bytes) -> bytes:
        """Return what only who has the job's key can know of a head and the states."""
        seal = blake2b(len(head).to_bytes(8), key=self._key, digest_size=_SEAL, person=b"head")
        seal.update(head)
        seal.update(states)
        return seal.digest()

    def _unseal(self, sealed: bytes | None, states: bytes | None) -> Head:
        if sealed is None or states is None:
            return Head()
        seal, head = sealed[:_SEAL], sealed[_SEAL:]
        proven = compare_digest(seal, self._seal(head, states))
        return _decode_head(head) if proven else Head()

    def snapshot(self) -> Snapshot:
        """Return all rows as they are now."""
        return self._database.snapshot()

    def draft_tables(self, directory: Path, pickled: Container[StateId]) -> TableDraft:
        """Have all that there is in tables, and link them into a directory, which is made."""
        self._database.save_to(directory)
        numbers = [rows.number for state, rows in self._rows.items() if state in pickled]
        return TableDraft(directory, len(self._rows), numbers)

    def compact(self) -> None:
        """Write all tables anew, without rows that were deleted or written again."""
        self._database.compact()

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()


def id_of(section: Section) -> StateId:
    """Return what identifies the state of a section."""
    return section.operator, section.state, section.namespaced
