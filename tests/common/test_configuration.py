import copy
import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.common import Configuration
from holdfast.common.configuration import parse_memory_size
from holdfast.common.options.setting import defaults_for


def test_values_come_back_in_the_type_asked_for():
    config = Configuration()
    config.set_string("s", "text").set_integer("i", 5).set_boolean("b", True).set_float("f", 1)
    config.set_bytearray("raw", bytearray(b"\x01\x02"))
    assert config.get_string("s", "") == "text"
    assert config.get_integer("i", 0) == 5
    assert config.get_boolean("b", False) is True
    assert config.get_float("f", 0.0) == 1.0
    assert config.get_bytearray("raw", bytearray()) == bytearray(b"\x01\x02")


def test_text_is_converted_on_read():
    config = Configuration({"i": "5", "b": "TRUE", "f": "1.5", "raw": "ab"})
    assert config.get_integer("i", 0) == 5
    assert config.get_boolean("b", False) is True
    assert config.get_float("f", 0.0) == 1.5
    assert config.get_bytearray("raw", bytearray()) == bytearray(b"ab")


def test_defaults():
    config = Configuration()
    assert config.get_string("x", "d") == "d"
    assert config.get_integer("x", 1) == 1
    assert config.get_boolean("x", True) is True
    assert config.get_float("x", 1) == 1.0
    assert config.get_bytearray("x", bytearray(b"d")) == bytearray(b"d")


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        ("get_integer", "ten", "key 'k': cannot read 'ten' as integer"),
        ("get_integer", 1.5, "key 'k': cannot read 1.5 as integer: expected an integer"),
        ("get_integer", True, "key 'k': cannot read True as integer"),
        ("get_integer", 2**63, "does not fit into 64 bits"),
        ("get_boolean", "yes", "key 'k': cannot read 'yes' as boolean: expected true or false"),
        ("get_float", "much", "key 'k': cannot read 'much' as float"),
        ("get_float", False, "key 'k': cannot read False as float: expected a number"),
        ("get_bytearray", 5, "key 'k': cannot read 5 as bytes: expected bytes"),
    ],
)
def test_a_failed_read_names_the_key_and_the_value(read, value, message):
    with pytest.raises(ValueError, match=message):
        getattr(Configuration({"k": value}), read)("k", None)


def test_keys_and_values_are_checked():
    with pytest.raises(TypeError, match="a configuration key must be a str; got int: 1"):
        Configuration().set_string(1, "x")
    with pytest.raises(ValueError, match="key 'k': a value must not be None; use remove_config"):
        Configuration().set_string("k", None)


def test_copies_are_independent():
    config = Configuration.from_dict({"a": "1"})
    copies = [Configuration(config), copy.copy(config), copy.deepcopy(config)]
    config.set_string("a", "2")
    assert all(c.get_string("a", "") == "1" for c in copies)


def test_add_all():
    config = Configuration({"a": 1})
    assert config.add_all(Configuration({"b": 2})).key_set() == {"a", "b"}
    config.add_all(Configuration({"c": 3}), "prefix.")
    assert config.contains_key("prefix.c")
    target = {"z": 0}
    config.add_all_to_dict(target)
    assert target == {"z": 0, "a": 1, "b": 2, "prefix.c": 3}


def test_remove_config():
    config = Configuration({"a": 1})
    assert config.remove_config("a") is True
    assert config.remove_config("a") is False
    assert not config.contains_key("a")


def test_to_dict_is_text():
    config = Configuration(
        {"b": True, "i": 1, "d": timedelta(seconds=10), "l": ["x", 2], "m": {"k": False}}
    )
    config.set_bytearray("raw", bytearray(b"\xff"))
    assert config.to_dict() == {
        "b": "true",
        "i": "1",
        "d": "10 s",
        "l": "x;2",
        "m": "k:false",
        "raw": "ff",
    }
    assert str(Configuration({"i": 1})) == "{'i': '1'}"


def test_equality_and_hash():
    assert Configuration({"a": 1}) == Configuration({"a": 1})
    assert Configuration({"a": 1}) != Configuration({"a": 2})
    assert Configuration() != {}
    assert hash(Configuration({"a": [1]})) == hash(Configuration({"a": [1]}))
    assert pickle.loads(pickle.dumps(Configuration({"a": 1}))) == Configuration({"a": 1})


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        ("a", ["a"]),
        ("a;b", ["a", "b"]),
        ("[a, b]", ["a", "b"]),
        ("['a,b', \"c\"]", ["a,b", "c"]),
        ("[]", []),
        ("- a\n- b\n", ["a", "b"]),
    ],
)
def test_parse_list_value(text, items):
    assert Configuration.parse_list_value(text) == items


@pytest.mark.parametrize(
    ("text", "size"),
    [("64mb", 64 << 20), ("1 g", 1 << 30), ("512", 512), ("2 KiB", 2048), (7, 7), ("1tb", 1 << 40)],
)
def test_parse_memory_size(text, size):
    assert parse_memory_size(text) == size


@pytest.mark.parametrize("text", ["", "mb", "1.5 gb", "-1", "1 xb", 1.5, True])
def test_parse_memory_size_refuses(text):
    with pytest.raises(ValueError, match=f"not a memory size: {text!r}"):
        parse_memory_size(text)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_texts_round_trip(entries):
    assert Configuration.from_dict(entries).to_dict() == entries


def test_where_settings_come_from():
    told = Configuration({"a": "1", "b": "2", "c": "3"})._come_from("command line")
    told.add_all(Configuration({"a": "9"})).set_string("d", "4")
    copied = Configuration(told).set_string("b", "8")
    origins = {key: copied._origin_of(key) for key in "abcd"}
    assert origins == {"a": "program", "b": "program", "c": "command line", "d": "program"}
    again = Configuration().add_all(told, "x.")
    assert again._origin_of("x.b") == "command line"
    assert again == Configuration(again.to_dict())  # what a value is does not depend on it


def test_defaults_of_settings_that_are_not_set():
    assert defaults_for(Configuration())["execution.checkpointing.mode"] == "EXACTLY_ONCE"
    for key in ("execution.checkpointing.num-retained", "state.checkpoints.num-retained"):
        found = defaults_for(Configuration({key: "3"}))
        assert "execution.checkpointing.num-retained" not in found
        assert "execution.checkpointing.mode" in found
