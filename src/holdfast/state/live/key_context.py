"""The current key of an operator, which the runtime sets and states read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.errors import JobDefinitionError


class _NoKey:
    """The key before the first record: a state cannot be used with it."""

    def __hash__(self) -> int:
        message = (
            "a keyed state is used while there is no key: open() only requests the state, and "
            "process_element(), on_timer() and so on use it; move the use to one of these. "
            "A function of batches has many keys at once: it requests get_column_state(...)"
        )
        raise JobDefinitionError(message)

    def __repr__(self) -> str:
        return "NO_KEY"


NO_KEY: Final = _NoKey()


class KeyContext:
    """The current key and namespace of one operator; the runtime sets them before each record.

    ``thaw`` converts the stored key to the one that functions see
    (`holdfast.state.types.key_forms`).
    """

    __slots__ = ("key", "namespace", "thaw")

    def __init__(
        self, key: Any = None, namespace: Any = None, thaw: Callable[[Any], Any] | None = None
    ) -> None:
        self.key = key
        self.namespace = namespace
        self.thaw = thaw

    def shown(self) -> Any:
        """Return the key as functions see it."""
        return self.key if self.thaw is None else self.thaw(self.key)
