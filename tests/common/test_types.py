import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Row, RowKind

names = st.lists(st.text(min_size=1, max_size=5), unique=True, max_size=5)
values = st.one_of(st.none(), st.integers(), st.text(), st.booleans(), st.tuples(st.integers()))


@st.composite
def rows(draw):
    fields = draw(names)
    row = Row(*[draw(values) for _ in fields])
    if draw(st.booleans()):
        row.set_field_names(fields)
    row.set_row_kind(draw(st.sampled_from(RowKind)))
    return row


@given(rows())
def test_pickling_and_copying_keep_everything(row):
    for twin in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert twin == row
        assert hash(twin) == hash(row)
        assert repr(twin) == repr(row)
        assert twin.get_row_kind() is row.get_row_kind()


@given(st.dictionaries(st.text(min_size=1, max_size=5), values), st.randoms())
def test_order_of_names_does_not_matter(fields, random):
    shuffled = list(fields.items())
    random.shuffle(shuffled)
    one, other = Row(*fields.values()), Row(*[v for _, v in shuffled])
    one.set_field_names(list(fields))
    other.set_field_names([k for k, _ in shuffled])
    assert one == other
    assert hash(one) == hash(other)


def test_a_copy_does_not_share_values():
    row = Row(1, 2)
    twin = copy.copy(row)
    twin[0] = 5
    assert row[0] == 1


def test_positional_access():
    row = Row(1, "a", None)
    assert (row[0], row[-1], row[0:2]) == (1, None, [1, "a"])
    assert list(row) == [1, "a", None]
    assert len(row) == 3
    assert "a" in row
    assert "b" not in row
    row[1] = "b"
    assert row == Row(1, "b", None)


def test_named_access():
    row = Row(name="Alice", age=11)
    assert (row.name, row["age"], row[0]) == ("Alice", 11, "Alice")
    assert "name" in row
    assert "Alice" not in row
    row["age"] = 12
    assert row.age == 12
    assert row._fields == ["name", "age"]


def test_a_field_may_be_called_self():
    assert Row(self=1).as_dict() == {"self": 1}


def test_factory():
    person = Row("name", "age")
    assert repr(person) == "<Row('name', 'age')>"
    assert "name" in person
    assert person("Alice", 11) == Row(name="Alice", age=11)
    assert repr(person("Alice")) == "Row(name='Alice')"
    with pytest.raises(AttributeError, match="age"):
        _ = person("Alice").age
    with pytest.raises(ValueError, match="expected 2 values but got"):
        person(1, 2, 3)


def test_partial_rows_compare():
    assert Row("a", "b")(1) != Row("b", "a")(1)
    assert Row("a", "b")(1) == Row("a", "b")(1)


def test_unknown_names():
    row = Row(name="Alice")
    for error in (KeyError, ValueError):  # Python expects the one, PyFlink raises the other
        with pytest.raises(error, match="no field 'age' in Row"):
            row["age"]
    with pytest.raises(KeyError, match="no field 'age'"):
        row["age"] = 1
    with pytest.raises(AttributeError, match="age"):
        _ = row.age
    with pytest.raises(AttributeError):
        row.age = 5
    with pytest.raises(KeyError, match="has no field names; use an index, or set_field_names"):
        Row(1)["a"]
    with pytest.raises(AttributeError):
        _ = Row(1).a
    assert not hasattr(Row(1), "_fields")


def test_args_and_kwargs_do_not_mix():
    with pytest.raises(ValueError, match="both args and kwargs"):
        Row(1, a=2)


def test_names_must_differ():
    with pytest.raises(ValueError, match=r"must differ from each other; got \['a', 'a'\]"):
        Row(1, 2).set_field_names(["a", "a"])


def test_as_dict():
    row = Row(key=1, value=Row(name="a"), more=[Row(x=1)], by={"k": Row(y=2)})
    assert row.as_dict()["value"] == Row(name="a")
    assert row.as_dict(True) == {
        "key": 1,
        "value": {"name": "a"},
        "more": [{"x": 1}],
        "by": {"k": {"y": 2}},
    }
    with pytest.raises(TypeError, match="Cannot convert a Row class into dict"):
        Row(1).as_dict()


def test_fields_by_names():
    row = Row(a=1, b=2)
    assert row.get_fields_by_names(["b", "a"]) == [2, 1]
    assert row.get_fields_by_names(["a", "b"]) == [1, 2]
    assert Row(1, 2).get_fields_by_names(["x", "y"]) == [1, 2]
    with pytest.raises(ValueError, match=r"Field names \['c'\] not exist in \['a', 'b'\]"):
        row.get_fields_by_names(["c"])


def test_kinds():
    row = Row.of_kind(RowKind.DELETE, 1, 2)
    assert row.get_row_kind() is RowKind.DELETE
    assert row != Row(1, 2)
    row.set_row_kind(RowKind.INSERT)
    assert row == Row(1, 2)
    assert [str(kind) for kind in RowKind] == ["+I", "-U", "+U", "-D"]


def test_equality():
    assert Row(1, 2) == Row(1, 2)
    assert Row(a=1) != Row(1)
    assert Row(a=1) != Row(b=1)
    assert Row(1, 2) != (1, 2)
    assert Row(1) != Row(1, 2)
    assert len({Row(a=1, b=2), Row(b=2, a=1)}) == 1
    assert repr(Row(1, "a")) == "<Row(1, 'a')>"
