"""Keys in columns belong to the key groups of the same keys as Python values."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.state.column_keys import column_key_groups, column_targets, python_keys
from holdfast.state.key_groups import KeyRouter, key_group

_SMALL = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [-1, -2, 0, 2**61 - 1, 2**61 - 2, 1 - 2**61]
)
_TEXT = st.text(max_size=8) | st.text(max_size=60)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.int64(), _SMALL),
        (pa.int8(), st.integers(-128, 127)),
        (pa.uint64(), st.integers(0, 2**64 - 1)),
        (pa.string(), _TEXT),
        (pa.large_string(), _TEXT),
        (pa.binary(), st.binary(max_size=60)),
        (pa.bool_(), st.booleans()),
        (pa.float64(), st.floats()),
        (pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
        (pa.date32(), st.dates()),
        (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(datetime.UTC))),
    ],
    ids=str,
)
def test_a_column_has_the_key_groups_of_its_values(
    column: pa.DataType, values: st.SearchStrategy[object]
) -> None:
    @settings(max_examples=40)
    @given(st.lists(values | st.none(), max_size=30), st.integers(0, 3))
    def check(keys: list[object], offset: int) -> None:
        array = pa.array(keys, column)
        expected = [key_group(key, 128) for key in array.to_pylist()]
        assert column_key_groups(array, 128).tolist() == expected
        assert column_key_groups(array.slice(offset), 128).tolist() == expected[offset:]
        if not pa.types.is_decimal(column):
            assert column_key_groups(array.dictionary_encode(), 128).tolist() == expected

    check()


@given(st.lists(st.tuples(_SMALL, _TEXT | st.none()), max_size=30))
def test_a_key_of_several_columns_has_the_key_group_of_a_tuple(keys: list[tuple[int, str]]) -> None:
    fields = [pa.field("a", pa.int64()), pa.field("b", pa.string())]
    struct = pa.StructArray.from_arrays(
        [pa.array([a for a, _ in keys], pa.int64()), pa.array([b for _, b in keys], pa.string())],
        fields=fields,
    )
    assert python_keys(struct) == keys
    assert column_key_groups(struct, 100).tolist() == [key_group(key, 100) for key in keys]


def test_targets_are_those_of_the_record_wise_router() -> None:
    keys = [f"key-{number}" for number in range(1000)]
    found = column_targets(pa.array(keys), 3, 128)
    assert found.tolist() == KeyRouter(3).targets(keys)
    assert found.dtype == np.uint16


def test_equal_numbers_have_equal_groups_whatever_their_type() -> None:
    groups = {
        int(column_key_groups(array, 128)[0])
        for array in (
            pa.array([7], pa.int32()),
            pa.array([7.0]),
            pa.array([Decimal(7)], pa.decimal128(5, 0)),
        )
    }
    assert groups == {key_group(7, 128)}
