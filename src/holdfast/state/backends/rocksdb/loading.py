"""`FileLoader`: puts the contents of state files into a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.state.backends.change_log import ChangeLog
from holdfast.state.backends.declared import DeclaredTables
from holdfast.state.backends.rocksdb.bound_states import BoundStates
from holdfast.state.backends.rocksdb.database import Changes
from holdfast.state.format.files import Section, StateFile
from holdfast.state.key_groups import KeyGroupShares
from holdfast.state.live.sections import load_section


class FileLoader:
    """Loads files in the order of their head, into the database of the states."""

    def __init__(
        self,
        states: BoundStates,
        tables: DeclaredTables,
        log: ChangeLog,
        shares: KeyGroupShares,
    ) -> None:
        """Load for these states; ``shares``: the key groups of this subtask."""
        self._states = states
        self._tables = tables
        self._log = log
        self._shares = shares

    def load(self, file: StateFile, until: int) -> None:
        """Load a file that ends at an epoch."""
        for section in file.sections:
            self.load_section(section, until)
        self._log.blobs.load(file.blobs)
        self._log.blobs.dirty.update(file.blobs)

    def load_section(self, section: Section, until: int) -> None:
        """Load a section of the file that ends at ``until``, or keep it unread."""
        log, own = self._log, self._log.own_part(section, self._shares.of(section.operator))
        if own.id in log.unread or (own.kind == "column" and own.chunks):
            # NB: columns cannot be declared here; they are kept for jobs that declare them
            log.unread.add(until, own)
            return
        concerned: list[Any] = []
        for place, chunk in enumerate(own.chunks):
            keys = self._load_chunk(replace(own, chunks=(chunk,)))
            if keys is None:
                log.unread.add(until, replace(own, chunks=own.chunks[place:]))
                break
            concerned += keys
        self._tables.tell(own.id, concerned)

    def _load_chunk(self, section: Section) -> list[Any] | None:
        """Write a section of one chunk to the database; None if its types are needed for that."""
        local, changes = self._states.opened(), Changes()
        rows = local.rows(replace(section, chunks=()))
        declared = self._states.get(section.id)
        as_it_is = rows.section == replace(section, chunks=())
        keys = rows.put_chunk(section.chunks[0], changes) if as_it_is else None
        if keys is not None:
            if declared is not None:
                declared.entries.forget(keys)
        elif declared is not None:
            self._log.needs_base |= section.types != declared.table.types
            declared.entries.limit_to(None)
            keys = load_section(declared.table, section, None)
            declared.save(keys, changes)
        local.write(changes)
        if declared is not None:
            declared.limit_memory()
        return keys
