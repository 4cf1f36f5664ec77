"""What a subtask needs of a checkpoint besides keyed state: the bytes that its operators saved."""

from __future__ import annotations

from holdfast.plan.model import PlannedOperator
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.protocol import Origin
from holdfast.state.backend import Chain, StateStorage, read_blobs
from holdfast.state.files import BlobId
from holdfast.state.operator_state import ListImage, decode_image, redistribute


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
        parts = [decode_image(blobs[place]) if place in blobs else {} for blobs in saved]
        return redistribute(parts, operator.parallelism)[subtask]

    def _blobs(self, chain: Chain) -> dict[BlobId, bytes]:
        if chain not in self._read:
            self._read[chain] = read_blobs(self._storage, chain)
        return self._read[chain]
