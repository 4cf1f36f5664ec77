from datetime import timedelta

import pytest

from holdfast.common import ConfigOptions, Configuration

INTERVAL = ConfigOptions.key("interval").duration_type().default_value(timedelta(milliseconds=200))


@pytest.mark.parametrize(
    ("build", "text", "value"),
    [
        ("boolean_type", "false", False),
        ("int_type", "5", 5),
        ("long_type", str(2**40), 2**40),
        ("float_type", "1.5", 1.5),
        ("double_type", "1.5", 1.5),
        ("string_type", "x", "x"),
        ("duration_type", "10 s", timedelta(seconds=10)),
        ("memory_type", "64mb", 64 << 20),
        ("map_type", "a:1, b:2:3", {"a": "1", "b": "2:3"}),
    ],
)
def test_options_read_text_and_values(build, text, value):
    option = getattr(ConfigOptions.key("k"), build)().no_default_value()
    assert Configuration({"k": text}).get(option) == value
    assert Configuration().set(option, value).get(option) == value
    assert Configuration().get(option) is None


def test_defaults():
    assert INTERVAL.key() == "interval"
    assert INTERVAL.has_default_value()
    assert INTERVAL.default_value() == timedelta(milliseconds=200)
    assert Configuration().get(INTERVAL) == timedelta(milliseconds=200)
    assert Configuration().get(INTERVAL, timedelta(1)) == timedelta(1)
    assert Configuration({"interval": 7}).get(INTERVAL) == timedelta(milliseconds=7)


def test_a_default_of_false_or_zero_counts():
    option = ConfigOptions.key("k").boolean_type().default_value(False)
    assert Configuration().get(option) is False
    assert Configuration({"k": "false"}).get(option, True) is False


@pytest.mark.parametrize(
    ("build", "value", "message"),
    [
        ("int_type", 2**31, "key 'k': cannot read 2147483648 as int: it does not fit into 32 bits"),
        ("duration_type", "soon", "key 'k': cannot read 'soon' as duration: not a duration"),
        ("duration_type", 1.5, "key 'k': cannot read 1.5 as duration: a duration must be"),
        ("memory_type", "64 x", "key 'k': cannot read '64 x' as memory: not a memory size"),
        ("map_type", "a", "key 'k': cannot read 'a' as map: 'a' is not a 'key:value' pair"),
        ("map_type", 5, "key 'k': cannot read 5 as map: expected a mapping"),
    ],
)
def test_a_failed_read_names_the_key_and_the_value(build, value, message):
    option = getattr(ConfigOptions.key("k"), build)().no_default_value()
    with pytest.raises(ValueError, match=message):
        Configuration({"k": value}).get(option)


def test_options_are_values():
    assert ConfigOptions.key("a").int_type().default_value(1) == ConfigOptions.key(
        "a"
    ).int_type().default_value(1)
    assert ConfigOptions.key("interval").duration_type().no_default_value() != INTERVAL
