"""Key/value configuration.

Values are stored as they were given and converted when they are read, so that ``"10 s"`` from a
file and a `timedelta` from a program mean the same.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from typing import Any, TypeVar, overload

from holdfast.common import config_options as opt
from holdfast.common.config_options import ConfigOption, parse_memory_size
from holdfast.common.time import parse_duration

__all__ = ["Configuration", "parse_duration", "parse_memory_size"]

T = TypeVar("T")

#: the items of a list in brackets: a text in quotes, or anything up to the next comma
_ITEM = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^,]*)\s*(?:,|$)""")


class Configuration:
    """Configuration values by key."""

    __slots__ = ("_origins", "_values")

    def __init__(self, other: Configuration | Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = _values_of(other)
        #: where values come from that the program has not set itself, in words
        self._origins: dict[str, str] = (
            dict(other._origins) if isinstance(other, Configuration) else {}
        )

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """Return a configuration with the entries of a dict."""
        return cls(map)

    @overload
    def get(self, option: ConfigOption[T]) -> T | None: ...
    @overload
    def get(self, option: ConfigOption[T], override_default: T) -> T: ...
    def get(self, option: ConfigOption[T], override_default: T | None = None) -> T | None:
        """Return the option's value, else ``override_default``, else the option's own default."""
        value = self._values.get(option.key())
        if value is not None:
            return option.read(value)
        return option.default_value() if override_default is None else override_default

    def set(self, option: ConfigOption[T], value: T | str) -> Configuration:
        """Set the option to a value, or to its text."""
        return self._put(option.key(), value)

    def get_string(self, key: str, default_value: str) -> str:
        """Return the value as text."""
        return opt.to_text(self._values[key]) if key in self._values else default_value

    def set_string(self, key: str, value: str) -> Configuration:
        """Set the key to a text."""
        return self._put(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """Return the value as an integer of 64 bits."""
        if key not in self._values:
            return default_value
        return opt.convert(key, "integer", opt.to_long, self._values[key])

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set the key to an integer."""
        return self._put(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return the value as a bool."""
        if key not in self._values:
            return default_value
        return opt.convert(key, "boolean", opt.to_boolean, self._values[key])

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set the key to a bool."""
        return self._put(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        """Return the value as a float."""
        if key not in self._values:
            return float(default_value)
        return opt.convert(key, "float", opt.to_float, self._values[key])

    def set_float(self, key: str, value: float) -> Configuration:
        """Set the key to a float."""
        return self._put(key, float(value))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Return a copy of the value's bytes."""
        if key not in self._values:
            return bytearray(default_value)
        return opt.convert(key, "bytes", opt.to_bytes, self._values[key])

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set the key to a copy of the bytes."""
        return self._put(key, bytes(value))

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """Return the items of a list as Flink writes it: ``a;b``, ``[a, b]``, or a YAML list."""
        text = value.strip() if value else ""
        if text.startswith("[") and text.endswith("]"):
            return [_unquote(item) for item in _ITEM.findall(text[1:-1]) if item.strip()]
        if text.startswith("- "):
            return [_unquote(line.strip()[1:]) for line in text.splitlines() if line.strip()]
        return value.split(";") if text else []

    def key_set(self) -> builtins.set[str]:
        """Return all keys."""
        return {*self._values}

    def contains_key(self, key: str) -> bool:
        """Return whether the key is set."""
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Remove the key; return whether it was set."""
        return self._values.pop(key, None) is not None

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Add the entries of another configuration, with an optional prefix for their keys."""
        start = prefix or ""
        self._values.update({start + key: value for key, value in other._values.items()})
        for key in other._values:
            self._origins.pop(start + key, None)
        self._origins.update({start + key: origin for key, origin in other._origins.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Add all entries, with their values as they were given, to the dict."""
        target_dict.update(self._values)

    def to_dict(self) -> dict[str, str]:
        """Return all entries with their values as text."""
        return {key: opt.to_text(value) for key, value in self._values.items()}

    def _put(self, key: object, value: Any) -> Configuration:
        if not isinstance(key, str):
            message = f"a configuration key must be a str; got {type(key).__name__}: {key!r}"
            raise TypeError(message)
        if value is None:
            message = f"configuration key {key!r}: a value must not be None; use remove_config"
            raise ValueError(message)
        self._values[key] = value
        self._origins.pop(key, None)
        return self

    def _come_from(self, origin: str) -> Configuration:
        """Note where all values come from, in words; a value that is set later does not."""
        self._origins = dict.fromkeys(self._values, origin)
        return self

    def _origin_of(self, key: str) -> str:
        """Return where the value of a key comes from, in words."""
        return self._origins.get(key, "program")

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Configuration) else NotImplemented

    def __hash__(self) -> int:
        # As in PyFlink: by content at the time of the call; do not change a key of a dict.
        return hash(frozenset(self.to_dict().items()))

    def __copy__(self) -> Configuration:
        return Configuration(self)

    def __repr__(self) -> str:
        return f"Configuration({self._values!r})"

    def __str__(self) -> str:
        return str(self.to_dict())


def _values_of(other: Configuration | Mapping[str, Any] | None) -> dict[str, Any]:
    if other is None:
        return {}
    return dict(other._values if isinstance(other, Configuration) else other)


def _unquote(item: str) -> str:
    item = item.strip()
    if len(item) >= 2 and item[0] == item[-1] and item[0] in "'\"":
        return item[1:-1]
    return item
