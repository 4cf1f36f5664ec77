"""`Savepoint`: a savepoint, or a retained checkpoint, as data."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import Final

from holdfast.checkpoint.metadata import OperatorImage
from holdfast.checkpoint.saved_image import SavedImage
from holdfast.checkpoint.savepoints import read_savepoint
from holdfast.runtime.operators.windows.contents import CONTENTS
from holdfast.runtime.timer_queue import TIMER_STATES
from holdfast.savepoint import readers
from holdfast.savepoint.data import StateData
from holdfast.savepoint.info import OperatorInfo, StateSize, operator_info
from holdfast.savepoint.lookup import find_operator, find_state, states_of
from holdfast.state.format.catalog import SavedState
from holdfast.state.format.head import Head
from holdfast.state.live.operator_state import MODES
from holdfast.state.names import StateId
from holdfast.state.saved_entries import count_entries

#: the name of the state with the contents of windows, which `Savepoint.windows` reads
WINDOW_CONTENTS: Final = CONTENTS
_NO_WINDOWS: Final = SavedState(CONTENTS, "list", (None,), namespaced=True)


class Savepoint:
    """A savepoint or a retained checkpoint, read without the job's code.

    Values are plain: a record is a dict by field, a member of an enum its value, a set a list.
    Pickled values are read without running any of their code, and shown as far as possible. With
    ``trusted`` they are unpickled, which needs their classes and **can run any code** that was put
    into the file.

    Attributes:
        path: its address.
        id: the id of the checkpoint.
        timestamp: the time at which it was taken, in milliseconds.
        job_name: the name of the job that took it.
        size: the size of its state files.
        operators: its operators, by uid.
    """

    def __init__(self, image: SavedImage) -> None:
        """Use `read`."""
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
        self.trusted = image.trusted

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, trusted: bool = False) -> Savepoint:
        """Read the metadata of a savepoint or checkpoint; state is read on demand.

        Args:
            path: its directory, or its metadata file, on any file system.
            trusted: whether to unpickle pickled values.

        Raises:
            CheckpointError: if it does not exist, or a file of it is missing.
        """
        return cls(replace(read_savepoint(path), trusted=trusted))

    def keyed_state(self, operator: str, state: str, windowed: bool | None = None) -> StateData:
        """Return a keyed state: ``key``, ``value``, and if present ``window`` and ``accessed``.

        Args:
            operator: its uid, or its name if it is unique.
            state: the name of the state.
            windowed: selects one of two states of the same name, if one is kept per window.

        Raises:
            StateLookupError: if there is no such operator or state.
        """
        uid, image = find_operator(self._images, operator)
        saved = find_state(image, state, windowed=windowed)
        state_id = StateId(uid, saved.name, saved.namespaced)
        reader = readers.KeyedReader(state_id, saved, image.key_type, self.trusted)
        return self._data(uid, f"state '{state}'", reader, saved)

    def operator_state(self, operator: str, state: str) -> StateData:
        """Return a list state (``subtask``, ``value``) or a broadcast state of an operator.

        The rows of a broadcast state have ``key`` and ``value``.
        """
        uid, image = find_operator(self._images, operator)
        saved = find_state(image, state, keyed=False)
        reader = readers.OperatorStateReader(uid, saved, self.trusted)
        return self._data(uid, f"operator state '{state}'", reader, saved)

    def windows(self, operator: str) -> StateData:
        """Return the contents of an operator's windows: ``key``, ``window``, ``value``.

        A window has its ``start`` and ``end`` in milliseconds; the global one is None. The value is
        a list of the records, or their reduced or aggregated value.
        """
        uid, image = find_operator(self._images, operator)
        saved = next((s for s in states_of(image) if s.name == CONTENTS), _NO_WINDOWS)
        reader = readers.WindowReader(uid, saved, image.key_type, self.trusted)
        return self._data(uid, "its windows", reader, saved)

    def timers(self, operator: str) -> StateData:
        """Return the timers of an operator: ``key``, ``domain``, ``timestamp``, ``window``."""
        uid, image = find_operator(self._images, operator)
        saved = [state for state in image.states if state.name in TIMER_STATES.values()]
        reader = readers.TimerReader(uid, image.key_type, self.trusted)
        return self._data(uid, "its timers", reader, *saved)

    @property
    def _images(self) -> dict[str, OperatorImage]:
        return self.image.metadata.operators

    def sizes(self) -> list[StateSize]:
        """Count the entries and bytes of every state; read all files, but decode no values."""
        entries: Counter[StateId] = Counter()
        sizes: Counter[StateId] = Counter()
        for level in self.image.metadata.levels:
            for head in level.heads:
                found = count_entries(self.image.storage, head, readers.loads_of(self.trusted))
                entries.update({state: amount.entries for state, amount in found.items()})
                sizes.update({state: amount.bytes for state, amount in found.items()})

        def size_of(uid: str, saved: SavedState) -> StateSize:
            if saved.kind in MODES:
                return self._operator_state_size(uid, saved)
            state = StateId(uid, saved.name, saved.namespaced)
            return StateSize(*state, entries[state], sizes[state])

        images = sorted(self._images.items())
        return [size_of(uid, saved) for uid, image in images for saved in states_of(image)]

    def heads(self, uid: str) -> tuple[Head, ...]:
        """Return the heads of an operator's subtasks."""
        image = self._images[uid]
        return self.image.metadata.levels[image.level].heads[: image.parallelism]

    def _operator_state_size(self, uid: str, saved: SavedState) -> StateSize:
        reader = readers.OperatorStateReader(uid, saved, self.trusted)
        parts = readers.parts_of(self._images[uid], self.heads(uid), divisible=False)
        images = [reader.image(self.image.storage, part) for part in parts]
        elements = [element for image in images for element in image.elements]
        size = sum(len(data) for _, data, _ in elements)
        return StateSize(uid, saved.name, False, len(elements), size, keyed=False)

    def _data(self, uid: str, what: str, reader: readers.Reader, *states: SavedState) -> StateData:
        image = self._images[uid]
        divisible = not any(state.pickled for state in states)
        parts: list[readers.HeadPart] = readers.parts_of(image, self.heads(uid), divisible)
        return StateData(f"{what} of operator '{image.name}'", self.image.storage, reader, parts)

    def __repr__(self) -> str:
        return f"Savepoint({self.path!r})"
