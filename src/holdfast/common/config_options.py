"""Typed configuration keys: `ConfigOption` and its builder `ConfigOptions`.

A `Configuration` stores values as they were given; an option converts them. Every error names the
key and the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from holdfast.common.time import format_duration, parse_duration
from holdfast.errors import ConfigurationError

__all__ = ["ConfigOption", "ConfigOptions", "parse_memory_size"]

T = TypeVar("T")

_MEMORY: Final = re.compile(r"(\d+)\s*([a-z]*)")
_MEMORY_UNITS: Final = {
    **dict.fromkeys(("", "b", "byte", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kib", "kibibyte", "kibibytes"), 1 << 10),
    **dict.fromkeys(("m", "mb", "mib", "mebibyte", "mebibytes"), 1 << 20),
    **dict.fromkeys(("g", "gb", "gib", "gibibyte", "gibibytes"), 1 << 30),
    **dict.fromkeys(("t", "tb", "tib", "tebibyte", "tebibytes"), 1 << 40),
}


def parse_memory_size(value: str | int) -> int:
    """Return a number of bytes from an int, or from text such as ``"64mb"`` or ``"1 g"``.

    Units are powers of 1024, as in Flink.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _MEMORY.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    factor = _MEMORY_UNITS.get(match.group(2)) if match else None
    if match is None or factor is None:
        message = f"not a memory size: {value!r}; write a number and a unit, such as '64 mb'"
        raise ValueError(message)
    return int(match.group(1)) * factor


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """A configuration key, the type of its value, and the value if it is not set."""

    _key: str
    _type_name: str
    _convert: Callable[[Any], T] = field(repr=False, compare=False)
    _default: T | None = None

    def key(self) -> str:
        """Return the key."""
        return self._key

    def has_default_value(self) -> bool:
        """Return whether there is a value if none is set."""
        return self._default is not None

    def default_value(self) -> T | None:
        """Return the value if none is set, or None."""
        return self._default

    def read(self, value: Any) -> T:
        """Return the value in the option's type, or fail with the key and the value."""
        return convert(self._key, self._type_name, self._convert, value)


class ConfigOptions:
    """Creates a `ConfigOption`.

    >>> ConfigOptions.key("tmp.dir").string_type().default_value("/tmp").key()
    'tmp.dir'
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Start an option with this key."""
        return ConfigOptions.OptionBuilder(key)

    @dataclass(frozen=True)
    class OptionBuilder:
        """An option that still needs its type."""

        _key: str

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Set the type to true or false."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "boolean", to_boolean)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Set the type to an integer of 32 bits."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "int", to_int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Set the type to an integer of 64 bits."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "long", to_long)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Set the type to a number; Python has one kind of float."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "float", to_float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Set the type to a number."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "double", to_float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Set the type to text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "string", to_text)

        def duration_type(self) -> ConfigOptions.TypedConfigOptionBuilder[timedelta]:
            """Set the type to a duration, such as ``"10 s"``."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "duration", parse_duration)

        def memory_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Set the type to a number of bytes, such as ``"64mb"``."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "memory", parse_memory_size)

        def map_type(self) -> ConfigOptions.TypedConfigOptionBuilder[dict[str, str]]:
            """Set the type to a map of texts, such as ``"a:1,b:2"``."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "map", to_map)

    @dataclass(frozen=True)
    class TypedConfigOptionBuilder(Generic[T]):
        """An option that still needs its default."""

        _key: str
        _type_name: str
        _convert: Callable[[Any], T]

        def default_value(self, value: T) -> ConfigOption[T]:
            """Return the option; it has this value if none is set."""
            return ConfigOption(self._key, self._type_name, self._convert, value)

        def no_default_value(self) -> ConfigOption[T]:
            """Return the option; it is None if no value is set."""
            return ConfigOption(self._key, self._type_name, self._convert)


def convert(key: str, type_name: str, read: Callable[[Any], T], value: Any) -> T:
    """Return ``read(value)``; a failure names the key, the value and the type."""
    try:
        return read(value)
    except (TypeError, ValueError) as error:
        message = f"configuration key {key!r}: cannot read {value!r} as {type_name}: {error}"
        raise ConfigurationError(message) from error


def to_boolean(value: Any) -> bool:
    """Return a bool from a bool or from the text true or false."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else None
    if word not in ("true", "false"):
        message = "expected true or false"
        raise ValueError(message)
    return word == "true"


def to_int(value: Any) -> int:
    """Return an integer of 32 bits."""
    return _in_range(_integer(value), 32)


def to_long(value: Any) -> int:
    """Return an integer of 64 bits."""
    return _in_range(_integer(value), 64)


def to_float(value: Any) -> float:
    """Return a float from a number or its text."""
    if isinstance(value, bool):
        message = "expected a number"
        raise ValueError(message)
    return float(value)


def to_bytes(value: Any) -> bytearray:
    """Return a copy of bytes, or of the UTF-8 of a text."""
    return bytearray(value.encode()) if isinstance(value, str) else bytearray(_bytes_like(value))


def to_map(value: Any) -> dict[str, str]:
    """Return a map of texts from a mapping, or from ``key:value`` pairs joined by commas."""
    if isinstance(value, Mapping):
        return {str(k): to_text(v) for k, v in value.items()}
    if not isinstance(value, str):
        message = "expected a mapping or 'key:value,key:value'"
        raise ValueError(message)
    return dict(_pair(part) for part in value.split(",") if part.strip())


def to_text(value: Any) -> str:
    """Return the text of a value as a configuration file would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, list | tuple):
        return ";".join(to_text(v) for v in value)
    if isinstance(value, Mapping):
        return ",".join(f"{k}:{to_text(v)}" for k, v in value.items())
    return str(value)


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition(":")
    if not separator:
        message = f"{text!r} is not a 'key:value' pair"
        raise ValueError(message)
    return key.strip(), value.strip()


def _bytes_like(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        message = "expected bytes"
        raise ValueError(message)
    return bytes(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        message = "expected an integer"
        raise ValueError(message)
    return int(value)


def _in_range(value: int, bits: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        message = f"it does not fit into {bits} bits"
        raise ValueError(message)
    return value
