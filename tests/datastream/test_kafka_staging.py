"""Records on their way to a topic: what is written to files is what is read from them."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream.connectors.files.part_files import FileTransaction, Place
from holdfast.datastream.connectors.kafka import staging
from holdfast.datastream.connectors.kafka.records import ProducerRecord
from holdfast.datastream.connectors.kafka.staging import KafkaTransaction, StagedRecords
from holdfast.filesystem import FileSystemError

DATA = st.none() | st.binary(max_size=20)
RECORDS = st.builds(
    ProducerRecord,
    topic=st.text(max_size=5),
    value=DATA,
    key=DATA,
    partition=st.none() | st.integers(0, 9),
    timestamp=st.none() | st.integers(0, 2**62),
    headers=st.lists(st.tuples(st.text(max_size=5), DATA), max_size=2).map(tuple),
)


def staged(
    folder: str, epochs: list[list[ProducerRecord]]
) -> tuple[StagedRecords, FileTransaction]:
    """The files of several epochs, and all of them as one."""
    place = Place(folder, "sink")
    files = StagedRecords(place, 0, 0)
    whole = FileTransaction(place)
    for records in epochs:
        transaction = KafkaTransaction("id", FileTransaction(place))
        for record in records:
            files.add(transaction, record)
        files.finish(transaction)
        whole.parts += transaction.staged.parts
    return files, whole


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(RECORDS, max_size=8), max_size=3), st.integers(1, 5), st.integers(1, 30))
def test_records_come_back_in_their_order(
    epochs: list[list[ProducerRecord]], count: int, size: int
) -> None:
    limits = patch.multiple(staging, _CHUNK_RECORDS=count, _CHUNK_BYTES=size)
    with limits, TemporaryDirectory() as folder:
        files, whole = staged(folder, epochs)
        chunks = files.read(KafkaTransaction("id", whole))
        assert [record for chunk in chunks for record in chunk] == [*chain(*epochs)]


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_file_that_is_too_short(tmp_path: Path, cut: int) -> None:
    files, whole = staged(str(tmp_path), [[ProducerRecord("topic", b"value")]])
    (path,) = (path for path in tmp_path.rglob("*") if path.is_file())
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(FileSystemError, match=f"'.*{path.name}' are damaged"):
        list(files.read(KafkaTransaction("id", whole)))


def test_nothing_is_left_when_all_is_forgotten(tmp_path: Path) -> None:
    files, whole = staged(str(tmp_path), [[ProducerRecord("t", b"1")], [ProducerRecord("t", b"2")]])
    transaction = KafkaTransaction("id", whole)
    assert files.is_there(transaction)
    assert not files.is_begun(transaction)
    files.begin(transaction)
    assert sorted(transaction.files) == sorted(p.name for p in tmp_path.rglob("*") if p.is_file())
    files.discard(transaction)
    assert (files.is_there(transaction), files.is_begun(transaction)) == (False, True)
    files.forget(transaction)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
