"""Takes key groups over from the state of other subtasks, after a rescale or from a savepoint."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from holdfast.state.backends.head_files import read_head
from holdfast.state.format.files import BlobId, Section
from holdfast.state.format.head import Head
from holdfast.state.format.stored_files import merge_blobs
from holdfast.state.key_groups import KeyGroupShares
from holdfast.state.storage.directory import ReadableStorage


def take_over_key_groups(
    storage: ReadableStorage,
    heads: Iterable[Head],
    shares: KeyGroupShares,
    operators: Container[str] | None,
    load: Callable[[Section], None],
) -> list[dict[BlobId, bytes]]:
    """Read some heads, load the sections of a subtask's key groups, and return each head's blobs.

    ``shares``: the key groups of the subtask. ``operators``: take over only their states.
    ``load`` selects the key groups within a section.
    """

    def wanted(state: Section) -> range | None:
        if operators is not None and state.operator not in operators:
            return range(0)
        groups, max_parallelism = shares.of(state.operator)
        # NB: if the number of key groups differs, everything is read: any entry is an error
        return groups if state.max_parallelism == max_parallelism else None

    blobs: list[dict[BlobId, bytes]] = []
    for head in heads:
        blobs.append({})
        for _, file in read_head(storage, head, wanted=wanted):
            merge_blobs(blobs[-1], file.blobs)
            for section in file.sections:
                if operators is None or section.operator in operators:
                    load(section)
    return blobs
