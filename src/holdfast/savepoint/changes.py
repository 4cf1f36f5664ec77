"""Changes of the operators of a savepoint for a new one: drop, rename, map values."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from holdfast.checkpoint.metadata import LevelImage, OperatorImage
from holdfast.datastream.state import StateDescriptor
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.savepoint.lookup import find_operator, find_state
from holdfast.savepoint.made_states import KeyedLayout, layout_of, section_of
from holdfast.savepoint.readers import loads_of
from holdfast.savepoint.savepoint import Savepoint
from holdfast.state.errors import PickledStateError, StateLookupError
from holdfast.state.format.catalog import SavedState, merged
from holdfast.state.format.files import BlobId, Section, StateFile, encode_file
from holdfast.state.format.head import FileRef, Head
from holdfast.state.format.stored_files import read_file
from holdfast.state.format.table_files import index_of
from holdfast.state.live.operator_state import MODES, decode_image, encode_image
from holdfast.state.live.ttl.pairs import split_times, with_times
from holdfast.state.names import StateId
from holdfast.state.saved_entries import read_entries, table_sections
from holdfast.state.storage.directory import StateStorage

_Blobs = dict[BlobId, bytes | memoryview | None]


@dataclass(frozen=True)
class _Mapped:
    """A change of the values of a keyed state."""

    saved: SavedState
    layout: KeyedLayout
    function: Callable[[Any], Any]


class SavepointChanges:
    """The requested changes; operators are identified by their uids in the original savepoint."""

    def __init__(self, savepoint: Savepoint) -> None:
        self._savepoint = savepoint
        self._loads = loads_of(savepoint.trusted)
        #: the new uid of every operator that is kept
        self._uids: dict[str, str] = {uid: uid for uid in savepoint.operators}
        self._dropped: set[tuple[str, str]] = set()
        self._mapped: dict[StateId, _Mapped] = {}
        #: states whose new values are pickled
        self._pickled: set[StateId] = set()

    def uids(self) -> set[str]:
        """Return the uids of the operators in the new savepoint."""
        return set(self._uids.values())

    def drop(self, operator: str) -> None:
        """Drop an operator."""
        uid, _ = self._operator(operator)
        del self._uids[uid]

    def drop_state(self, operator: str, state: str) -> None:
        """Drop a state."""
        uid, image = self._operator(operator)
        if state not in {saved.name for saved in image.states}:
            known = ", ".join(sorted(repr(saved.name) for saved in image.states))
            message = f"operator '{image.name}' has no state {state!r}; it has {known or 'none'}"
            raise StateLookupError(message)
        self._dropped.add((uid, state))

    def rename(self, operator: str, uid: str) -> None:
        """Change the uid of an operator."""
        old, _ = self._operator(operator)
        if uid in self.uids() - {self._uids[old]}:
            message = f"the savepoint has an operator with the uid '{uid}' already; drop it first"
            raise ValueError(message)
        self._uids[old] = uid

    def map(
        self,
        operator: str,
        state: str,
        function: Callable[[Any], Any],
        descriptor: StateDescriptor | None,
    ) -> None:
        """Change the values of a state."""
        uid, image = self._operator(operator)
        saved = find_state(image, state)
        if saved.pickled and not self._savepoint.trusted:
            message = (
                f"state {state!r} of operator '{image.name}' is pickled, keys or values, and would "
                "be pickled again; read the savepoint with trusted=True, where its classes can be "
                "imported"
            )
            raise PickledStateError(message)
        state_id = StateId(uid, state, saved.namespaced)
        if state_id in self._mapped:
            message = (
                f"the values of state {state!r} of operator '{image.name}' are changed already; "
                "do both in one function"
            )
            raise ValueError(message)
        layout = _layout(uid, image, saved, descriptor)
        self._mapped[state_id] = _Mapped(saved, layout, function)

    def write(self, storage: StateStorage) -> tuple[list[LevelImage], dict[str, OperatorImage]]:
        """Write the heads of the operators that are kept, and return their metadata."""
        metadata = self._savepoint.image.metadata
        levels = [
            LevelImage(
                level.parallelism, tuple(self._rewrite(head, storage) for head in level.heads)
            )
            for level in metadata.levels
        ]
        operators = {
            new: msgspec.structs.replace(
                metadata.operators[old], states=merged(self._states(old, metadata.operators[old]))
            )
            for old, new in self._uids.items()
        }
        return levels, operators

    def _operator(self, name: str) -> tuple[str, OperatorImage]:
        uid, image = find_operator(self._savepoint.image.metadata.operators, name)
        if uid not in self._uids:
            message = f"operator '{name}' is dropped already"
            raise StateLookupError(message)
        return uid, image

    def _states(self, uid: str, image: OperatorImage) -> Iterator[SavedState]:
        for saved in image.states:
            if (uid, saved.name) not in self._dropped:
                state = StateId(uid, saved.name, saved.namespaced)
                mapped = None if saved.kind in MODES else self._mapped.get(state)
                yield saved if mapped is None else mapped.layout.saved(state in self._pickled)

    # A head

    def _rewrite(self, head: Head, target: StateStorage) -> Head:
        refs = []
        for number, ref in enumerate(head.files):
            name = f"made-{uuid.uuid4().hex}.state"
            data = encode_file(self._changed(head, number), name)
            target.write(name, data)
            refs.append(FileRef(name, len(data), ref.since, ref.until))
        return Head(tuple(refs), head.lineage)

    def _changed(self, head: Head, number: int) -> StateFile:
        """Return the new contents of a file of a head; the base includes the contents of tables."""
        storage = self._savepoint.image.storage
        ref = head.files[number]
        file = read_file(storage, ref.name, ref.size)
        sections: list[Section] = []
        if number == 0:
            if head.tables:
                _, _, file = index_of(file, head)
                sections += self._from_tables(head)
            sections += self._new_values(head)
        kept = (s for s in file.sections if self._is_kept(s) and s.id not in self._mapped)
        sections += map(self._renamed, kept)
        return StateFile(sections, self._blobs(dict(file.blobs)))

    def _is_kept(self, section: Section) -> bool:
        """Return whether a state is in the new savepoint, unchanged or with other values."""
        state = section.operator, section.state
        return section.operator in self._uids and state not in self._dropped

    def _renamed(self, section: Section) -> Section:
        return replace(section, operator=self._uids[section.operator])

    def _from_tables(self, head: Head) -> list[Section]:
        """Return the contents of the tables, with one section for each state."""
        found: dict[StateId, list[Section]] = {}
        storage = self._savepoint.image.storage

        def wanted(section: Section) -> bool:
            return self._is_kept(section) and section.id not in self._mapped

        for section in table_sections(storage, head, wanted, loads=self._loads):
            if section.pickled and not self._savepoint.trusted:
                message = (
                    f"{section.id} is pickled, keys or values, and would be pickled anew; read "
                    "the savepoint with trusted=True"
                )
                raise PickledStateError(message)
            found.setdefault(section.id, []).append(self._renamed(section))
        return [
            replace(sections[0], chunks=tuple(chunk for s in sections for chunk in s.chunks))
            for sections in found.values()
        ]

    def _new_values(self, head: Head) -> Iterator[Section]:
        storage = self._savepoint.image.storage
        for state, mapped in self._mapped.items():
            entries: dict[Any, Any] = {}
            for keys, values in read_entries(storage, head, state, loads=self._loads):
                for key, value in zip(keys, values, strict=True):
                    entries[key] = _new_value(mapped, value)
            section = section_of(mapped.layout, entries)
            if section.chunks and self._is_kept(section):
                if section.pickled:
                    self._pickled.add(state)
                yield self._renamed(section)

    def _blobs(self, blobs: _Blobs) -> _Blobs:
        kept: _Blobs = {}
        for (uid, name), data in blobs.items():
            if uid and uid not in self._uids:
                continue
            if name == OPERATOR_STATE and data is not None:
                image = decode_image(data, uid)
                left = {n: part for n, part in image.items() if (uid, n) not in self._dropped}
                data = encode_image(left) if left != image else data
            kept[self._uids.get(uid, uid), name] = data
        return kept


def _layout(
    uid: str, image: OperatorImage, saved: SavedState, descriptor: StateDescriptor | None
) -> KeyedLayout:
    if descriptor is not None:
        layout = layout_of(uid, descriptor, image.max_parallelism)
        return replace(layout, name=saved.name, namespaced=saved.namespaced)
    return KeyedLayout(
        operator=uid,
        name=saved.name,
        kind=saved.kind,
        schemas=saved.types,
        types=(None,) * len(saved.types),
        max_parallelism=image.max_parallelism,
        namespaced=saved.namespaced,
        expires=saved.expires,
    )


def _new_value(mapped: _Mapped, entry: Any) -> Any:
    value, times = split_times(mapped.saved.kind, entry) if mapped.saved.expires else (entry, None)
    new = mapped.function(value)
    if new is None or not mapped.layout.expires:
        return new
    return with_times(mapped.layout.kind, new, times)
