"""Classes that have moved are found where they are now."""

from __future__ import annotations

import pickle

import pytest

from holdfast.datastream.connectors.files.part_files import Part, Segment
from holdfast.datastream.connectors.kafka.offsets import KafkaTopicPartition
from holdfast.state.types.unpickling import unpickle

MOVED = [
    (KafkaTopicPartition("orders", 3), "kafka.offsets", "_kafka_offsets"),
    (Part("2026", (Segment("a", 10, 0),), "part-0"), "files.part_files", "_part_files"),
]


@pytest.mark.parametrize(("value", "now", "before"), MOVED)
def test_what_an_earlier_version_pickled_is_read(value: object, now: str, before: str) -> None:
    new = f"holdfast.datastream.connectors.{now}".encode()
    old = f"holdfast.datastream.connectors.{before}".encode()
    # NB: protocol 0 has names as lines, without their lengths
    saved = pickle.dumps(value, 0).replace(new, old)
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(saved)
    assert unpickle(saved) == value


def test_a_module_that_nobody_has_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        unpickle(b"cnowhere\nThing\n.")


def test_what_has_not_moved_is_unpickled_as_ever() -> None:
    assert unpickle(pickle.dumps({"a": [1, 2]})) == {"a": [1, 2]}
