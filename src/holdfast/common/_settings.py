"""`Setting`: one entry of a configuration, with its older names and its smallest value.

What a program sets and what a configuration brings along is checked alike, by the same words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Final, Generic, TypeVar, cast

from holdfast.common.config_options import ConfigOption, ConfigOptions, to_text
from holdfast.common.configuration import Configuration

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A typed option that is also found under the keys of older versions of Flink.

    The key of today wins over the older ones, and those over each other in their order.
    """

    option: ConfigOption[T]
    older: tuple[str, ...] = ()
    least: T | None = None

    def keys(self) -> tuple[str, ...]:
        """Return the key and the older ones."""
        return (self.option.key(), *self.older)

    def find(self, configuration: Configuration) -> T | None:
        """Return the value that was set, or None."""
        key = next((key for key in self.keys() if configuration.contains_key(key)), None)
        if key is None:
            return None
        value = configuration.get(replace(self.option, _key=key))
        return None if value is None else self._bounded(key, value)

    def get(self, configuration: Configuration) -> T:
        """Return the value that was set, or the default, which there must be."""
        found = self.find(configuration)
        return cast(T, self.option.default_value()) if found is None else found

    def put(self, configuration: Configuration, value: Any) -> None:
        """Set the value, in any form that can be read."""
        checked = self._bounded(self.option.key(), self.option.read(value))
        kept: Any = checked.name if isinstance(checked, Enum) else checked
        configuration.set(self.option, kept)

    def clear(self, configuration: Configuration) -> None:
        """Let the setting have its default again."""
        for key in self.keys():
            configuration.remove_config(key)

    def _bounded(self, key: str, value: T) -> T:
        if self.least is not None and cast(Any, value) < self.least:
            message = f"{key} must be at least {to_text(self.least)}; got {to_text(value)}"
            raise ValueError(message)
        return value


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


CHECKPOINT_INTERVAL: Final = Setting(
    ConfigOptions.key("execution.checkpointing.interval").duration_type().no_default_value()
)


def is_checkpointing_enabled(configuration: Configuration) -> bool:
    """Return whether there is an interval of checkpoints; zero and less are none."""
    return (CHECKPOINT_INTERVAL.find(configuration) or timedelta()) > timedelta()
