"""The distance of two records, for `DeltaTrigger` and `DeltaEvictor`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class DeltaFunction(ABC, Generic[T]):
    """Measures the distance of two records."""

    @abstractmethod
    def get_delta(self, old_data_point: T, new_data_point: T) -> float:
        """Return how far the new record is from the old one."""


@dataclass(frozen=True)
class _CallableDelta(DeltaFunction[Any]):
    function: Callable[[Any, Any], float]

    def get_delta(self, old_data_point: Any, new_data_point: Any) -> float:
        return self.function(old_data_point, new_data_point)


def as_delta(user: str, given: Any) -> DeltaFunction[Any]:
    """Return a delta function for one, or for a function of two records."""
    if hasattr(given, "get_delta"):
        return given  # type: ignore[no-any-return]
    if callable(given):
        return _CallableDelta(given)
    message = (
        f"{user}: expected a DeltaFunction or a function of two records; "
        f"got {type(given).__name__}: {given!r}"
    )
    raise TypeError(message)
