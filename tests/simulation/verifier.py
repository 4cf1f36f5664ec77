"""Recomputes what a checkpoint must hold, from the positions in it alone, in plain Python."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint.metadata import CheckpointMetadata
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.operators.sources.source_instance import POSITION
from holdfast.state.backend import (
    Head,
    HeapKeyedStateBackend,
    KeyContext,
    StateStorage,
    read_blobs,
)
from holdfast.state.live.operator_state import OperatorStateBackend, decode_image
from tests.simulation.job import (
    AMOUNTS,
    COUNTED,
    KEPT,
    LENGTH,
    MAX_PARALLELISM,
    OFFSETS,
    PARTITIONS,
    RAW,
    READINGS,
    RECORDS,
    SEEN,
    TOTAL,
    Record,
    amount_of,
    key_of,
)
from tests.simulation.world import Violation


@dataclass
class Image:
    """What a checkpoint holds, from all subtasks."""

    name: str
    long: bool
    positions: list[tuple[int, int]] = field(default_factory=list)
    #: whether the sources were told that they have come to their end
    drained: bool = False
    kept: list[Record] = field(default_factory=list)
    readings: list[tuple[int, int, int, int]] = field(default_factory=list)
    totals: dict[int, list[int]] = field(default_factory=dict)
    #: in pairs
    records: dict[int, list[list[Record]]] = field(default_factory=dict)
    offsets: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    amounts: dict[int, list[int]] = field(default_factory=dict)
    seen: dict[int, dict[tuple[int, int], list[int]]] = field(default_factory=dict)

    @property
    def counted(self) -> list[Record]:
        """The records that were counted."""
        pairs = [pair for pairs in self.records.values() for pair in pairs]
        return [record for pair in pairs for record in pair]

    @property
    def at_end(self) -> bool:
        """Whether everything was read."""
        return self.positions == [(partition, LENGTH) for partition in range(PARTITIONS)]

    def results(self) -> Counter[Any]:
        """What the job has given so far."""
        if not self.long:
            return Counter(self.counted)
        return Counter((*record, kind) for record in self.counted for kind in (RAW, COUNTED))


def read_image(name: str, metadata: CheckpointMetadata, storage: StateStorage) -> Image:
    image = Image(name, "audit" in metadata.operators)
    for head in _heads(metadata, "source"):
        blobs = read_blobs(storage, head)
        if ("source", POSITION) in blobs:
            finished, position = pickle.loads(blobs["source", POSITION])
            image.positions += position.items()
            image.drained |= finished and any(end < LENGTH for end in position.values())
        if ("buffer", OPERATOR_STATE) in blobs:
            states = OperatorStateBackend(
                "buffer", decode_image(blobs["buffer", OPERATOR_STATE], "buffer")
            )
            image.kept += states.get_list_state(KEPT).get()
            image.readings += states.get_list_state(READINGS).get()
    image.positions.sort()
    for head in _heads(metadata, "totals"):
        wanted = ((TOTAL, image.totals), (RECORDS, image.records), (OFFSETS, image.offsets))
        _read_keyed(storage, head, "totals", (*wanted, (AMOUNTS, image.amounts)))
    for head in _heads(metadata, "audit"):
        _read_keyed(storage, head, "audit", ((SEEN, image.seen),))
    return image


def _heads(metadata: CheckpointMetadata, uid: str) -> Iterable[Head]:
    saved = metadata.operators.get(uid)
    return () if saved is None else metadata.levels[saved.level].heads[: saved.parallelism]


def _read_keyed(
    storage: StateStorage, head: Head, uid: str, wanted: Iterable[tuple[Any, dict[Any, Any]]]
) -> None:
    backend = HeapKeyedStateBackend(range(MAX_PARALLELISM), MAX_PARALLELISM)
    backend.restore(storage, head)
    for descriptor, into in wanted:
        backend.keyed_state(uid, descriptor, KeyContext())
        for key, _, value in backend.entries(uid, descriptor.get_name()):
            if key in into:
                raise Violation(f"two subtasks of {uid} have state for key {key}")
            into[key] = value


def check_image(image: Image, replayable: bool) -> None:
    """Every record before the positions has affected everything exactly once; no other has."""
    _equal(image, "partitions", [p for p, _ in image.positions], list(range(PARTITIONS)))
    expected = _expected(image, replayable)
    counted = image.counted
    _equal(image, "buffered and counted records", sorted([*image.kept, *counted]), expected)
    totals: Counter[int] = Counter()
    amounts: dict[int, list[int]] = {}
    offsets: dict[int, dict[int, list[int]]] = {}
    for record in counted:
        key, (partition, offset, _) = key_of(record), record
        totals[key] += amount_of(record)
        amounts.setdefault(key, []).append(amount_of(record))
        offsets.setdefault(key, {}).setdefault(partition, []).append(offset)
    _equal(image, "totals", image.totals, {key: [total] for key, total in totals.items()})
    _equal(image, "amounts", image.amounts, amounts)
    _equal(image, "offsets", image.offsets, offsets)
    for key, pairs in image.records.items():
        keys = {key_of(record) for pair in pairs for record in pair}
        _equal(image, "keys", keys, {key})
        _equal(image, "pairs", [len(pair) for pair in pairs[:-1]], [2] * (len(pairs) - 1))
    if image.long:
        seen: dict[int, dict[tuple[int, int], list[int]]] = {}
        for partition, offset, reading in counted:
            for kind in (RAW, COUNTED):
                seen.setdefault(partition, {})[offset, kind] = [reading]
        _equal(image, "audit", image.seen, seen)


def _expected(image: Image, replayable: bool) -> list[Record]:
    """The records that the positions say were read."""
    readings = {
        (partition, offset): reading
        for partition, reading, first, count in image.readings
        for offset in range(first, first + count)
    }
    return [
        (partition, offset, 0 if replayable else readings.get((partition, offset), -1))
        for partition, end in image.positions
        for offset in range(end)
    ]


def _equal(image: Image, what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise Violation(f"{image.name} has wrong {what}: expected {expected}, found {found}")
