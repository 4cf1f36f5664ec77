"""States in columns against a dict: any batches, with keys that occur many times and with nulls."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.state.column_keys import column_hashes, python_keys
from holdfast.state.columns import key_parts
from holdfast.state.columns.column import Column
from holdfast.state.columns.forms import ValueForm
from holdfast.state.columns.state import ColumnState
from holdfast.state.columns.table import ColumnTable
from holdfast.state.errors import StateMigrationError, StateTypeError

PAIR = pa.struct([("a", pa.string()), ("b", pa.int32())])
TEXTS = st.text(st.sampled_from("abé\0"), max_size=20)
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)])),
    "unsigned": (pa.uint64(), st.sampled_from([0, 1, 2**64 - 1])),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, -1e300])),
    "date": (pa.date32(), st.dates(datetime.date(2020, 1, 1), datetime.date(2020, 1, 3))),
    "string": (pa.string(), TEXTS),
    "binary": (pa.binary(), st.binary(max_size=9)),
    "pair": (PAIR, st.tuples(TEXTS, st.integers(0, 2))),
}
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-100, 100)),
    "small": (pa.int8(), st.integers(0, 1)),
    "float": (pa.float64(), st.floats(-1e6, 1e6)),
    "decimal": (pa.decimal128(20, 2), st.decimals(-100, 100, places=2)),
}


def make_state(type_: pa.DataType, default: Any = None) -> tuple[ColumnTable, ColumnState]:
    table = ColumnTable("op")
    table.add_column("s", Column(ValueForm(type_), default))
    return table, ColumnState(table, "s")


def key_array(keys: list[Any], type_: pa.DataType) -> pa.Array:
    if type_ != PAIR:
        return pa.array(keys, type_)
    return pa.array([dict(zip("ab", key, strict=True)) for key in keys], type_)


class Model:
    """One value per key in a dict, changed record by record."""

    def __init__(self, default: Any = None) -> None:
        self.held: dict[Any, Any] = {}
        self.default = default

    def get(self, key: Any) -> Any:
        return self.held.get(key, self.default)

    def combine(self, function: Callable[[Any, Any], Any], key: Any, value: Any) -> Any:
        if value is not None:
            before = self.get(key)
            self.held[key] = value if before is None else function(before, value)
        return self.get(key)

    def put(self, key: Any, value: Any) -> Any:
        self.held.pop(key, None)
        if value is not None:
            self.held[key] = value
        return self.get(key)


MODEL: dict[str, Callable[[Model, Any, Any], Any]] = {
    "put": Model.put,
    "add": lambda model, key, value: model.combine(operator.add, key, value),
    "min": lambda model, key, value: model.combine(min, key, value),
    "max": lambda model, key, value: model.combine(max, key, value),
    "last": lambda model, key, value: model.combine(lambda old, new: new, key, value),
    "first": lambda model, key, value: (
        model.held.setdefault(key, value) if value is not None else None
    ),
    "clear": lambda model, key, value: model.held.pop(key, None),
}
RUNNING = {f"running_{name}": name for name in ("add", "min", "max")}


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.DataType, pa.DataType, Any, list[Any]]:
    key_type, keys = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    value_type, values = VALUES[draw(st.sampled_from(sorted(VALUES)))]
    row = st.tuples(keys, st.none() | values)
    few = 3 if value_type == pa.int8() else 30
    operation = st.sampled_from([*MODEL, *RUNNING])
    steps = draw(st.lists(st.tuples(operation, st.lists(row, max_size=few)), max_size=8))
    default = Decimal(5) if pa.types.is_decimal(value_type) else 5
    return key_type, value_type, draw(st.sampled_from([None, default])), steps


@settings(max_examples=100, deadline=None)
@given(batches())
def test_every_operation_is_that_of_single_records(
    case: tuple[pa.DataType, pa.DataType, Any, list[Any]],
) -> None:
    key_type, value_type, default, steps = case
    table, state = make_state(value_type, default)
    model = Model(default)
    for name, rows in steps:
        given_keys = [key for key, _ in rows]
        keys = table.keys(key_array(given_keys, key_type))
        values = pa.array([value for _, value in rows], value_type)
        simple = RUNNING.get(name, name)
        expected = [MODEL[simple](model, key, value) for key, value in rows]
        if name == "clear":
            state.clear(keys)
        else:
            got = getattr(state, name)(keys, values)
            if name in RUNNING:
                assert got.to_pylist() == expected
        assert state.get(keys).to_pylist() == [model.get(key) for key in given_keys]
        distinct = python_keys(keys.distinct)
        assert set(distinct) == set(given_keys)
        assert len(set(distinct)) == len(distinct)
        assert [distinct[i] for i in keys.indices] == given_keys
        assert state.get_distinct(keys).to_pylist() == [model.get(key) for key in distinct]
        assert table.columns["s"].count == len(model.held)


def test_many_keys_grow_the_table_and_keep_their_slots() -> None:
    table, state = make_state(pa.int64(), 0)
    numbers = np.random.default_rng(1).permutation(50_000)
    for start in range(0, len(numbers), 7_000):
        state.count(table.keys(pa.array(numbers[start : start + 7_000])))
    keys = table.keys(pa.array(numbers, pa.int32()))
    assert len(table) == len(numbers)
    assert state.get(keys).to_numpy().min() == state.get(keys).to_numpy().max() == 1
    assert keys.distinct.to_numpy()[keys.indices].tolist() == numbers.tolist()
    assert table.find(pa.array([0, 50_000])).tolist()[1] == -1


def test_texts_of_one_hash_are_different_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.state.columns.key_parts import TextPart

    monkeypatch.setattr(TextPart, "codes", lambda self, values: values.lengths.view(np.uint64))
    table, state = make_state(pa.int64())
    words = pa.array(["aa", "ab", "ba", "bb", "aa", "b"])
    assert state.running_count(table.keys(words)).to_pylist() == [1, 1, 1, 1, 2, 1]
    assert state.running_count(table.keys(words)).to_pylist() == [3, 2, 2, 2, 4, 2]


def test_running_values_of_many_rows_per_key_and_of_few() -> None:
    rng = np.random.default_rng(2)
    numbers = np.concatenate([np.zeros(500, int), rng.integers(1, 300, 500)])
    rng.shuffle(numbers)
    values = rng.normal(size=len(numbers)) * 1e6
    table, state = make_state(pa.float64())
    got = state.running_add(table.keys(pa.array(numbers)), values).to_pylist()
    held: dict[int, float] = {}
    expected = []
    for number, value in zip(numbers.tolist(), values.tolist(), strict=True):
        held[number] = held.get(number, 0.0) + value
        expected.append(held[number])
    assert got == expected  # to the last bit


def test_sums_beyond_the_type_are_errors_and_change_nothing() -> None:
    table, state = make_state(pa.int64())
    keys = table.keys(pa.array(["x", "y", "x"]))
    state.put(keys, [1, 2, 2**62])
    state.add(keys, [1, 1, 2**62 - 2])
    assert state.get(keys).to_pylist() == [2**63 - 1, 3, 2**63 - 1]
    for add in (state.add, state.running_add):
        with pytest.raises(
            StateTypeError, match="'s' of operator 'op', key 'x': the sum 9223372036"
        ):
            add(keys, [1, 1, 0])
    assert state.get(keys).to_pylist() == [2**63 - 1, 3, 2**63 - 1]
    state.add(keys, [-(2**63), -(2**63), -(2**63) + 1])
    assert state.get(keys).to_pylist()[1] == 3 - 2**63


def test_values_of_other_types() -> None:
    lists = pa.list_(pa.int64())
    table, state = make_state(lists)
    keys = table.keys(pa.array([1, 2, 1]))
    state.put(keys, pa.array([[1], [2, 3], []], lists))
    assert state.get(keys).to_pylist() == [[], [2, 3], []]
    with pytest.raises(TypeError, match="'s' of operator 'op': min needs a type that is ordered"):
        state.min(keys, [[1]] * 3)
    table, state = make_state(pa.string())
    keys = table.keys(pa.array([1, 2, 1]))
    state.min(keys, ["b", None, "a"])
    assert state.get(keys).to_pylist() == ["a", None, "a"]
    with pytest.raises(TypeError, match="add needs a type that is a number; it is string"):
        state.add(keys, ["b"] * 3)
    table, state = make_state(pa.timestamp("us", "UTC"))
    moment = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    keys = table.keys(pa.array([1, 2]))
    state.max(keys, [moment, None])
    assert state.get(keys).to_pylist() == [moment, None]


def test_values_can_be_one_for_all_a_numpy_array_or_chunks() -> None:
    table, state = make_state(pa.int32())
    keys = table.keys(pa.chunked_array([[1, 2], [1]]))
    state.add(keys, 2)
    state.add(keys, np.array([1, 2, 3]))
    state.add(keys, pa.chunked_array([[1], [1, 1]]))
    assert state.get(keys).to_pylist() == [10, 5, 10]
    state.put(keys, pa.scalar(None, pa.int32()))
    assert state.get(keys).to_pylist() == [None] * 3
    state.put_distinct(keys, [7, 8])
    assert state.get_distinct(keys).to_pylist() == [7, 8]
    held = dict(zip(keys.distinct.to_pylist(), (7, 8), strict=True))
    state.add(keys.filter(pa.array([True, None, False])), 1)
    state.add(keys.take(np.array([0, 0])), 1)
    assert state.get(keys.take(np.array([0]))).to_pylist() == [held[1] + 3]
    with pytest.raises(ValueError, match="expected 3 values; got 2; give one value for each row"):
        state.add(keys, [1, 2])
    with pytest.raises(StateTypeError, match="a value does not fit its type int32"):
        state.add(keys, [1, 2, 2**40])


def test_keys_that_cannot_be() -> None:
    table, _ = make_state(pa.int64())
    with pytest.raises(ValueError, match="a key is null, or a field of it; filter these records"):
        table.keys(pa.array([1, None]))
    with pytest.raises(StateMigrationError, match="operator 'op': its keys are int64; got string"):
        table.keys(pa.array(["x"]))
    with pytest.raises(TypeError, match=r"list<item: int64> cannot be the type of keys"):
        make_state(pa.int64())[0].keys(pa.array([[1]]))
    other, state = make_state(pa.int64())
    with pytest.raises(ValueError, match="the keys are not of this batch"):
        state.get(table.keys(pa.array([1])))
    keys = other.keys(pa.array([1]))
    other.clear()
    with pytest.raises(ValueError, match="the keys are not of this batch"):
        state.get(keys)


def test_floats_that_are_equal_are_one_key_alone_and_in_a_key_of_several_columns() -> None:
    """Arrow's own dictionaries tell 0.0 from -0.0, and one NaN from another."""
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)
    floats = np.concatenate([[0.0, -0.0, np.nan], other_nan])
    for type_ in (pa.float64(), pa.float32()):
        column = pa.array(floats, from_pandas=False).cast(type_)
        pair = pa.StructArray.from_arrays([pa.array(["a"] * 4), column], ["name", "number"])
        for keys in (column, pair):
            table, state = make_state(pa.int64())
            assert state.running_count(table.keys(keys)).to_pylist() == [1, 2, 1, 2]
            state.count(table.keys(keys))
            assert state.get(table.keys(keys)).to_pylist() == [4] * 4
            assert len(table) == 2


@pytest.mark.parametrize(
    "type_",
    [pa.dictionary(pa.int8(), pa.string()), pa.large_string(), pa.string_view()],
    ids=str,
)
def test_texts_in_any_form_are_the_same_keys(type_: pa.DataType) -> None:
    words, numbers = ["a", "b", "a"], pa.array([1, 1, 1])
    for pair in (False, True):

        def keys(type_: pa.DataType, pair: bool = pair) -> pa.Array:
            texts = pa.array(words, type_)
            return pa.StructArray.from_arrays([texts, numbers], "ab") if pair else texts

        table, state = make_state(pa.int64())
        assert state.running_count(table.keys(keys(type_))).to_pylist() == [1, 1, 2]
        assert state.running_count(table.keys(keys(pa.string()))).to_pylist() == [3, 2, 4]
        assert column_hashes(keys(type_)).tolist() == column_hashes(keys(pa.string())).tolist()


def test_namespaces_are_part_of_the_key() -> None:
    table, state = make_state(pa.int64())
    keys = table.keys(pa.array(["a", "a", "b"]), pa.array([0, 60, 0]))
    assert state.running_count(keys).to_pylist() == [1, 1, 1]
    assert keys.distinct.to_pylist() == ["a", "a", "b"]
    assert table.reader().values(keys.slots) == [("a", 0), ("a", 60), ("b", 0)]


def test_dead_slots_go_when_they_are_many() -> None:
    table, state = make_state(pa.int64())
    numbers = pa.array(np.arange(40_000))
    state.put(table.keys(numbers), numbers)
    assert not table.compact()
    state.clear(table.keys(numbers[:30_000]))
    held = table.nbytes
    assert table.compact()
    assert len(table) == 10_000
    assert table.nbytes < held
    keys = table.keys(numbers)
    assert state.get(keys).to_pylist() == [None] * 30_000 + list(range(30_000, 40_000))
    assert state.get(keys.take(np.array([35_000]))).to_pylist() == [35_000]


def test_texts_of_more_than_2_gb_have_longer_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_parts, "_SHORT", 100)
    table, state = make_state(pa.int64())
    words = [f"word {n}" for n in range(40)]
    readers = []
    for first in range(0, 40, 10):
        state.count(table.keys(pa.array(words[first : first + 10])))
        readers.append(table.reader())
    assert state.running_count(table.keys(pa.array(words))).to_pylist() == [2] * 40
    for number, reader in enumerate(readers):
        held = np.arange(10 * number + 10)
        assert reader.values(held) == words[: len(held)], "as they were"


def test_a_key_and_a_number_take_no_more_than_40_bytes() -> None:
    table, state = make_state(pa.int64(), 0)
    count = 1 << 20
    for start in range(0, count, 1 << 17):
        state.count(table.keys(pa.array(np.arange(start, start + (1 << 17)) * 7919)))
    assert table.nbytes / count <= 40
