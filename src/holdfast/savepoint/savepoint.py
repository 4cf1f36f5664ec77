"""`Savepoint`: a savepoint, or a retained checkpoint, as data."""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.checkpoint.savepoints import SavedImage, read_savepoint
from holdfast.runtime.timers import TIMER_STATES
from holdfast.runtime.window_contents import CONTENTS
from holdfast.savepoint.data import StateData
from holdfast.savepoint.info import OperatorInfo, StateSize, operator_info
from holdfast.savepoint.lookup import find_operator, find_state, states_of
from holdfast.savepoint.readers import (
    KeyedReader,
    OperatorStateReader,
    Part,
    Reader,
    TimerReader,
    WindowReader,
    loads_of,
    parts_of,
)
from holdfast.state.catalog import SavedState
from holdfast.state.chain import Chain
from holdfast.state.operator_state import MODES
from holdfast.state.saved_entries import StateId, count_entries

__all__ = ["Savepoint"]

_NO_WINDOWS: Final = SavedState(CONTENTS, "list", (None,), namespaced=True)


class Savepoint:
    """A savepoint or a retained checkpoint, read without the job's code.

    Values are plain: a record is a dict by field, a member of an enum its value, a set a list. What
    is pickled is looked at without running any of its code, and shown as far as that goes; with
    ``trusted`` it is unpickled, which needs its classes and **can run any code** that somebody has
    put there.

    Attributes:
        path: its address.
        id: that of the checkpoint.
        timestamp: when it was taken, in milliseconds.
        job_name: the job that took it.
        size: that of its state files.
        operators: by uid.
    """

    def __init__(self, image: SavedImage, trusted: bool = False) -> None:
        """Made by `read`."""
        metadata = image.metadata
        self.path = image.address
        self.id = metadata.id
        self.timestamp = metadata.timestamp
        self.job_name = metadata.job_name
        self.size = metadata.state_size
        self.operators: dict[str, OperatorInfo] = {
            uid: operator_info(uid, saved) for uid, saved in sorted(metadata.operators.items())
        }
        self.image = image
        self.trusted = trusted

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, trusted: bool = False) -> Savepoint:
        """Read what a savepoint or checkpoint says of itself; its state when that is asked for.

        Args:
            path: its directory, or its metadata file, on any file system.
            trusted: unpickle what is pickled.

        Raises:
            CheckpointError: when there is none, or a file of it is missing.
        """
        return cls(read_savepoint(path), trusted)

    def keyed_state(self, operator: str, state: str, windowed: bool | None = None) -> StateData:
        """Return a keyed state: ``key``, ``value``; ``window`` and ``accessed`` where it has them.

        Args:
            operator: its uid, or its name if no other has that.
            state: the name of the state.
            windowed: which of two states of that name is meant, if one is kept by window.

        Raises:
            StateLookupError: when there is no such operator or state.
        """
        uid, image = find_operator(self._images, operator)
        saved = find_state(image, state, windowed=windowed)
        state_id = StateId(uid, saved.name, saved.namespaced)
        reader = KeyedReader(state_id, saved, image.key_type, self.trusted)
        return self._data(uid, f"state '{state}'", reader, saved)

    def operator_state(self, operator: str, state: str) -> StateData:
        """Return a list state of an operator (``subtask``, ``value``), or its broadcast state.

        The rows of the latter have ``key`` and ``value``.
        """
        uid, image = find_operator(self._images, operator)
        saved = find_state(image, state, keyed=False)
        reader = OperatorStateReader(uid, saved, self.trusted)
        return self._data(uid, f"operator state '{state}'", reader, saved)

    def windows(self, operator: str) -> StateData:
        """Return what the windows of an operator hold: ``key``, ``window``, ``value``.

        A window has its ``start`` and ``end`` in milliseconds; the global one is None. The value
        is a list of the records, or what they were reduced or aggregated to.
        """
        uid, image = find_operator(self._images, operator)
        saved = next((s for s in states_of(image) if s.name == CONTENTS), _NO_WINDOWS)
        reader = WindowReader(uid, saved, image.key_type, self.trusted)
        return self._data(uid, "its windows", reader, saved)

    def timers(self, operator: str) -> StateData:
        """Return the timers of an operator: ``key``, ``domain``, ``timestamp``, ``window``."""
        uid, image = find_operator(self._images, operator)
        saved = [state for state in image.states if state.name in TIMER_STATES.values()]
        reader = TimerReader(uid, image.key_type, self.trusted)
        return self._data(uid, "its timers", reader, *saved)

    @property
    def _images(self) -> dict[str, OperatorImage]:
        return self.image.metadata.operators

    def sizes(self) -> list[StateSize]:
        """Count the entries and bytes of every state; reads all of it, but decodes no values."""
        entries: Counter[StateId] = Counter()
        sizes: Counter[StateId] = Counter()
        for level in self.image.metadata.levels:
            for chain in level.chains:
                found = count_entries(self.image.storage, chain, loads_of(self.trusted))
                entries.update({state: amount.entries for state, amount in found.items()})
                sizes.update({state: amount.bytes for state, amount in found.items()})

        def size_of(uid: str, saved: SavedState) -> StateSize:
            if saved.kind in MODES:
                return self._operator_state_size(uid, saved)
            state = StateId(uid, saved.name, saved.namespaced)
            return StateSize(*state, entries[state], sizes[state])

        images = sorted(self._images.items())
        return [size_of(uid, saved) for uid, image in images for saved in states_of(image)]

    def chains(self, uid: str) -> tuple[Chain, ...]:
        """Return the chains of an operator's subtasks."""
        image = self._images[uid]
        return self.image.metadata.levels[image.level].chains[: image.parallelism]

    def _operator_state_size(self, uid: str, saved: SavedState) -> StateSize:
        reader = OperatorStateReader(uid, saved, self.trusted)
        parts = parts_of(self._images[uid], self.chains(uid), divisible=False)
        images = [reader.image(self.image.storage, part) for part in parts]
        elements = [element for image in images for element in image.elements]
        size = sum(len(data) for _, data, _ in elements)
        return StateSize(uid, saved.name, False, len(elements), size, keyed=False)

    def _data(self, uid: str, what: str, reader: Reader, *states: SavedState) -> StateData:
        image = self._images[uid]
        divisible = not any(state.pickled for state in states)
        parts: list[Part] = parts_of(image, self.chains(uid), divisible)
        return StateData(f"{what} of operator '{image.name}'", self.image.storage, reader, parts)

    def __repr__(self) -> str:
        return f"Savepoint({self.path!r})"
