"""The keys of a table as chunks of a file, which its columns share."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest

from holdfast.state.column_keys import column_key_groups
from holdfast.state.columns import key_reader
from holdfast.state.columns.key_reader import KeyReader
from holdfast.state.columns.table import ColumnTable
from holdfast.state.types.arrow_columns import decode_arrow

MOST = 8


def table_of(keys: pa.Array) -> ColumnTable:
    table = ColumnTable("op")
    table.keys(keys)
    return table


def keys_of(table: ColumnTable, slots: np.ndarray) -> list[str]:
    chunks = table.reader().chunks(slots, MOST)
    return [
        key for chunk in chunks for key in decode_arrow(chunk.columns[0].data).column(0).to_pylist()
    ]


@pytest.mark.parametrize("chunk", [3, 1 << 16])
def test_chunks_have_all_keys_in_the_order_of_key_groups(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_reader, "_CHUNK", chunk)
    keys = pa.array([f"key {n}" for n in range(40)])
    reader = table_of(keys).reader()
    slots = np.arange(1, 40, 2)
    groups = column_key_groups(keys, MOST)
    last = 0
    seen: list[int] = []
    for part in reader.chunks(slots, MOST):
        of = groups[slots[part.places]]
        assert (part.first, part.last) == (of.min(), of.max())
        assert last <= part.first
        last = part.last
        found = decode_arrow(part.columns[0].data).column(0)
        assert found.equals(keys.take(pa.array(slots[part.places])))
        seen += part.places.tolist()
    assert sorted(seen) == list(range(len(slots)))


def test_the_same_rows_are_encoded_once() -> None:
    reader = table_of(pa.array(["a", "b", "c"])).reader()
    first = reader.chunks(np.array([0, 2]), MOST)
    assert reader.chunks(np.array([0, 2]), MOST) is first
    assert reader.chunks(np.array([1]), MOST) is not first
    assert reader.chunks(np.array([0, 2]), MOST) is first
    assert reader.chunks(np.array([0, 2]), MOST + 1) is not first
    assert reader.chunks(np.array([], np.int64), MOST) == ()


def test_captures_share_a_reader_while_there_are_no_new_keys() -> None:
    table = table_of(pa.array(["a", "b", "c"]))
    reader = table.reader()
    assert table.reader() is reader
    table.keys(pa.array(["b"]))
    assert table.reader() is reader
    table.keys(pa.array(["d"]))
    assert table.reader() is not reader
    assert keys_of(table, np.array([3])) == ["d"]
    assert reader.count == 3


def test_a_reader_that_no_capture_keeps_is_freed() -> None:
    table = table_of(pa.array(["a", "b", "c"]))
    table.reader().chunks(np.array([0]), MOST)
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, KeyReader)]


def test_a_table_that_was_cleared_has_another_reader() -> None:
    table = table_of(pa.array(["a", "b", "c"]))
    reader = table.reader()
    table.clear()
    table.keys(pa.array(["x", "y", "z"]))
    assert keys_of(table, np.array([1])) == ["y"]
    assert reader(np.array([1]))[0].to_pylist() == ["b"]
