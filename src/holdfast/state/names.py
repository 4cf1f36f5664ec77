"""The identification of a state."""

from __future__ import annotations

from typing import NamedTuple


class StateId(NamedTuple):
    """Identifies a state of an operator. States of windows and timers have namespaces."""

    operator: str
    name: str
    namespaced: bool = False

    def __str__(self) -> str:
        """Return what messages call it."""
        return f"state {self.name!r} of operator {self.operator!r}"
