"""What a subtask needs of a checkpoint besides keyed state: the bytes that its operators saved."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.common.recovery_options import PICKLED_STATE
from holdfast.errors import InternalError
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.event_time import TIME
from holdfast.runtime.protocol import Origin
from holdfast.runtime.sources import POSITION
from holdfast.state.backend import Chain, StateStorage, read_blobs
from holdfast.state.errors import PickledStateError
from holdfast.state.files import BlobId, StateFile, decode_file
from holdfast.state.operator_state import ListImage, decode_image, redistribute
from holdfast.state.pickled_data import names_in


class SavedBlobs:
    """The bytes of all subtasks of the checkpoint that an attempt begins with, read when needed."""

    def __init__(self, storage: StateStorage, origin: Origin) -> None:
        self._storage = storage
        self._origin = origin
        self._read: dict[Chain, dict[BlobId, bytes]] = {}

    def all(self, uid: str, name: str) -> list[bytes]:
        """What an operator saved under a name, by subtask; nothing for those that saved none."""
        found = (self._blobs(chain).get((uid, name)) for chain in self._origin.chains(uid))
        return [data for data in found if data is not None]

    def of(self, uid: str, name: str, subtask: int) -> bytes | None:
        """What one subtask of an operator saved under a name."""
        chains = self._origin.chains(uid)
        return self._blobs(chains[subtask]).get((uid, name)) if subtask < len(chains) else None

    def image(self, operator: PlannedOperator, subtask: int) -> dict[str, ListImage]:
        """The operator state that a subtask gets of what all subtasks had saved."""
        place = (operator.uid, OPERATOR_STATE)
        saved = [self._blobs(chain) for chain in self._origin.chains(operator.uid)]
        uid = operator.uid
        parts = [decode_image(blobs[place], uid) if place in blobs else {} for blobs in saved]
        return redistribute(parts, operator.parallelism)[subtask]

    def _blobs(self, chain: Chain) -> dict[BlobId, bytes]:
        if chain not in self._read:
            self._read[chain] = read_blobs(self._storage, chain)
        return self._read[chain]


def pickles_refused(directory: str, what: str) -> PickledStateError:
    """The error for pickled values in a checkpoint that is not trusted."""
    return PickledStateError(
        f"{what} is pickled in the checkpoint at '{directory}', which is not the job's own; to "
        "unpickle it can run any code that somebody has put there; if you know where it comes "
        f"from, set '{PICKLED_STATE}' to true; states with a declared type are not pickled"
    )


class WithoutPickles:
    """State files from elsewhere, of which none is given out that would be unpickled.

    What a subtask reads of another checkpoint are its sections, and of its blobs the operator
    state, which says of each element whether it is pickled, and small pickles of the runtime's
    own. Of the latter those are let through that name no class or function.
    """

    def __init__(self, storage: StateStorage, directory: str) -> None:
        self._storage = storage
        self._directory = directory

    def read(self, name: str) -> bytes:
        """The contents of a file."""
        data = self._storage.read(name)
        for what in _pickles(decode_file(data, name)):
            self.refuse(what)
        return data

    def refuse(self, what: str) -> None:
        """Raise the error for something pickled."""
        raise pickles_refused(self._directory, what)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return self._storage.exists(name)

    def elsewhere(self, directory: str) -> WithoutPickles:
        """The state files of another directory, no more trusted than these."""
        return WithoutPickles(self._storage.elsewhere(directory), directory)

    def write(self, name: str, data: bytes, durable: bool = False) -> None:
        """Nothing is written to somebody else's checkpoint."""
        raise InternalError(f"file '{name}' would be written to '{self._directory}'")

    def upload(self, names: Iterable[str]) -> None:
        """Nothing is written to somebody else's checkpoint."""
        raise InternalError(f"files would be written to '{self._directory}'")

    def sync(self, names: Iterable[str]) -> None:
        """Nothing is written to somebody else's checkpoint."""
        raise InternalError(f"files would be written to '{self._directory}'")

    def delete(self, name: str) -> None:
        """Nothing is deleted of somebody else's checkpoint."""
        raise InternalError(f"file '{name}' would be deleted from '{self._directory}'")


def _pickles(file: StateFile) -> Iterable[str]:
    """What in a file is pickled and would be read."""
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
    """Whether numbers, texts and containers of them are pickled there, and nothing else."""
    try:
        return names_in(bytes(data)) <= {("builtins", "range")}
    except Exception:
        return False  # a damaged one is as little to be trusted
