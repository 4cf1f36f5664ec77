"""`Setting`: one entry of a configuration, with its older names and its smallest value.

Values that a program sets and values in a configuration are checked in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Generic, TypeVar, cast

from holdfast.common.config_options import (
    ConfigOption,
    parse_memory_size,
    to_boolean,
    to_float,
    to_int,
    to_text,
)
from holdfast.common.configuration import Configuration
from holdfast.common.time import parse_duration
from holdfast.errors import ConfigurationError

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

#: the keys of all settings, with their older ones
DECLARED_KEYS: Final[set[str]] = set()
_declared: Final[list[Setting[Any]]] = []


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A typed option that can also be set by the keys of older versions of Flink.

    The current key takes precedence over the older ones, and these in their order. The text of a
    setting is its key.
    """

    option: ConfigOption[T]
    older: tuple[str, ...] = ()
    least: T | None = None

    def __post_init__(self) -> None:
        DECLARED_KEYS.update(self.keys())
        _declared.append(self)

    def __str__(self) -> str:
        return self.option.key()

    def keys(self) -> tuple[str, ...]:
        """Return the key and the older ones."""
        return (self.option.key(), *self.older)

    def key_in(self, configuration: Configuration) -> str | None:
        """Return the key by which a configuration sets it, or None."""
        return next((key for key in self.keys() if configuration.contains_key(key)), None)

    def find(self, configuration: Configuration) -> T | None:
        """Return the value that was set, or None."""
        key = self.key_in(configuration)
        if key is None:
            return None
        value = configuration.get(replace(self.option, _key=key))
        return None if value is None else self._bounded(key, value)

    def get(self, configuration: Configuration) -> T:
        """Return the value that was set, or the default; there must be one."""
        found = self.find(configuration)
        return cast(T, self.option.default_value()) if found is None else found

    def put(self, configuration: Configuration, value: Any) -> None:
        """Set the value, in any form that can be read."""
        checked = self._bounded(self.option.key(), self.option.read(value))
        kept: Any = checked.name if isinstance(checked, Enum) else checked
        configuration.set(self.option, kept)

    def clear(self, configuration: Configuration) -> None:
        """Remove the value, so that the default applies again."""
        for key in self.keys():
            configuration.remove_config(key)

    def _bounded(self, key: str, value: T) -> T:
        if self.least is not None and cast(Any, value) < self.least:
            message = f"{key} must be at least {to_text(self.least)}; got {to_text(value)}"
            raise ConfigurationError(message)
        return value


def check_values(configuration: Configuration) -> None:
    """Read every setting that a configuration has.

    Raises:
        ConfigurationError: if a value cannot be used.
    """
    for setting in _declared:
        setting.find(configuration)


def flag(key: str, default: bool | None = False, older: tuple[str, ...] = ()) -> Setting[bool]:
    """Return a setting that is true or false."""
    return Setting(ConfigOption(key, "boolean", to_boolean, default), older)


def text(key: str, default: str | None = None, older: tuple[str, ...] = ()) -> Setting[str]:
    """Return a setting that is a text."""
    return Setting(ConfigOption(key, "string", to_text, default), older)


def count(
    key: str, default: int | None, least: int | None = None, older: tuple[str, ...] = ()
) -> Setting[int]:
    """Return a setting that is an integer."""
    return Setting(ConfigOption(key, "int", to_int, default), older, least)


def number(key: str, default: float) -> Setting[float]:
    """Return a setting that is a number."""
    return Setting(ConfigOption(key, "double", to_float, default))


def memory(key: str, default: int, least: int, older: tuple[str, ...] = ()) -> Setting[int]:
    """Return a setting that is a number of bytes."""
    return Setting(ConfigOption(key, "memory", parse_memory_size, default), older, least)


def duration(
    key: str,
    default: timedelta | None,
    least: timedelta | None = timedelta(),
    older: tuple[str, ...] = (),
) -> Setting[timedelta]:
    """Return a setting that is a duration, by default not negative."""
    return Setting(ConfigOption(key, "duration", parse_duration, default), older, least)


def choice(key: str, kind: type[E], default: E) -> Setting[E]:
    """Return a setting whose value is a member of an enum; its text is the member's name."""

    def read(value: Any) -> E:
        if isinstance(value, kind):
            return value
        word = value.strip().upper().replace("-", "_") if isinstance(value, str) else None
        found = kind.__members__.get(word) if word else None
        if found is None:
            message = f"expected one of {', '.join(kind.__members__)}"
            raise ValueError(message)
        return found

    return Setting(ConfigOption(key, kind.__name__, read, default))


def defaults_for(configuration: Configuration) -> dict[str, str]:
    """Return the default values of all settings that a configuration does not set, as text."""
    unset = [setting for setting in _declared if setting.key_in(configuration) is None]
    values = {str(setting): setting.option.default_value() for setting in unset}
    return {key: _text_of(values[key]) for key in sorted(values) if values[key] is not None}


def _text_of(value: Any) -> str:
    return value.name if isinstance(value, Enum) else to_text(value)
