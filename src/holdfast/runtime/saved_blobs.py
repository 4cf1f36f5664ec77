"""The bytes that operators saved in a checkpoint besides keyed state, for a subtask to restore."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.common.options.recovery import PICKLED_STATE
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.event_time import TIME
from holdfast.runtime.operators.sources.source_instance import POSITION
from holdfast.runtime.wire.protocol import Origin
from holdfast.state.backend import Head, read_blobs
from holdfast.state.errors import PickledStateError
from holdfast.state.format.files import BlobId, StateFile, decode_file
from holdfast.state.live.operator_state import ListImage, decode_image, redistribute
from holdfast.state.storage.directory import ReadableStorage
from holdfast.state.types.pickled_data import names_in


class SavedBlobs:
    """The bytes of all subtasks in the checkpoint that an attempt starts from, read when needed."""

    def __init__(self, storage: ReadableStorage, origin: Origin) -> None:
        self._storage = storage
        self._origin = origin
        self._read: dict[Head, dict[BlobId, bytes]] = {}

    def know(self, head: Head, blobs: dict[BlobId, bytes]) -> None:
        """Add the blobs of a head, so that they are not read again."""
        self._read[head] = blobs

    def all(self, uid: str, name: str) -> list[bytes]:
        """Return what an operator saved under a name, by subtask; skip subtasks without it."""
        found = (self._blobs(head).get((uid, name)) for head in self._origin.heads(uid))
        return [data for data in found if data is not None]

    def of(self, uid: str, name: str, subtask: int) -> bytes | None:
        """Return what one subtask of an operator saved under a name."""
        heads = self._origin.heads(uid)
        return self._blobs(heads[subtask]).get((uid, name)) if subtask < len(heads) else None

    def image(self, operator: PlannedOperator, subtask: int) -> dict[str, ListImage]:
        """Return the part of a subtask in the operator state that all subtasks have saved."""
        place = (operator.uid, OPERATOR_STATE)
        saved = [self._blobs(head) for head in self._origin.heads(operator.uid)]
        uid = operator.uid
        parts = [decode_image(blobs[place], uid) if place in blobs else {} for blobs in saved]
        return redistribute(parts, operator.parallelism)[subtask]

    def _blobs(self, head: Head) -> dict[BlobId, bytes]:
        if head not in self._read:
            self._read[head] = read_blobs(self._storage, head)
        return self._read[head]


def pickles_refused(directory: str, what: str) -> PickledStateError:
    """Return the error for pickled values in a checkpoint that is not trusted."""
    return PickledStateError(
        f"{what} is pickled in the checkpoint at '{directory}', which is not the job's own; "
        "unpickling it can run arbitrary code; if you trust the source of the checkpoint, "
        f"set '{PICKLED_STATE}' to true; states with a declared type are not pickled"
    )


class WithoutPickles:
    """State files of another job; those with values that would be unpickled are refused.

    From another checkpoint a subtask reads sections and two kinds of blobs. One is operator state,
    which says of each element whether it is pickled. The other is small pickles of the runtime
    itself, which are accepted if they refer to no class or function.
    """

    def __init__(self, storage: ReadableStorage, directory: str) -> None:
        self._storage = storage
        self._directory = directory

    def read(self, name: str) -> bytes:
        data = self._storage.read(name)
        for what in _pickles(decode_file(data, name)):
            raise pickles_refused(self._directory, what)
        return data


def _pickles(file: StateFile) -> Iterable[str]:
    """Yield descriptions of the pickled values in a file that would be read."""
    for section in file.sections:
        if section.pickled:
            yield f"state {section.state!r} of operator {section.operator!r}"
    for (operator, name), data in file.blobs.items():
        if data is None:
            continue
        if name == OPERATOR_STATE:
            for state, image in decode_image(data, operator).items():
                if image.pickled:
                    yield f"operator state {state!r} of operator {operator!r}"
        elif name in (TIME, POSITION) and not _is_harmless(data):
            yield f"the {name} of operator {operator!r}"


def _is_harmless(data: bytes | memoryview) -> bool:
    """Return whether a pickle contains only numbers, texts and containers of them."""
    try:
        return names_in(bytes(data)) <= {("builtins", "range")}
    except Exception:
        return False  # a damaged pickle is not trusted either
