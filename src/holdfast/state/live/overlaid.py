"""`OverlaidTable`: the values of a state on the heap, with the changed ones in a dict of their own.

A set of marks beside the entries takes two lookups in large dicts for each change, and two more for
each changed key in a checkpoint. Here a view writes to the *overlay*, which has the entries that
changed since the last capture, and nothing else. A key that changes often is found in that one,
smaller dict. None in an overlay stands for a removed entry, since None is never a value.

A capture takes the overlay as it is, and there is nothing to look up: it is the picture. A new
overlay takes its place. The contents of the old one are added to the entries little by little
(`OverlaidTable.merge_some`), and until that is done, a key is looked up in the new overlay, in the
old one and in the entries, in this order, without any Python code.

While a picture is not written, functions get copies of the values that it may refer to, unless
these are immutable (`OverlaidTable._hand_out`). The copies are kept beside the entries, since a
value that is only read is not a change.

The rest of the backend sees none of this: `entries` and `dirty` return an ordinary dict and set, to
which all overlays have been added.

Invariant: only views keep the overlay, and `OverlayViews.replace` gives them a new one.
Consequence: a table without views never has an overlay to add, so its user may keep `entries` and
`dirty`, as timers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from holdfast.common.typeinfo import TypeInformation
from holdfast.state.descriptors import ValueState
from holdfast.state.live.key_context import KeyContext
from holdfast.state.live.tables import IMMUTABLE, Table, ValueTable, own_value

#: keys that are looked at to estimate how many are new
_SAMPLE: Final = 64


class Overlay(dict[Any, Any]):
    """The changed entries by key; reading any other key returns what is below."""

    # NB: a method of Python would take several times as long for each key that is not found
    __slots__ = ("__missing__",)

    def __init__(self, below: Callable[[Any], Any]) -> None:
        """Start empty; ``below`` returns the entry of any other key, or None."""
        super().__init__()
        self.__missing__ = below


class OverlayViews(NamedTuple):
    """How views of a table are made, and how they get another overlay."""

    make: Callable[[KeyContext, Any], ValueState[Any]]
    replace: Callable[[Overlay], None]


class _Taken(NamedTuple):
    """The values that the last capture took, and the marks that it made of their keys."""

    marks: set[Any]
    values: dict[Any, Any]


class OverlaidTable(ValueTable):
    """Values without time-to-live on the heap.

    Attributes:
        overlay: what changed since the last capture, or since `entries` or `dirty` was last read.
        removes: whether there may be removed entries in the overlay.
        views: how views of this table are made; None before there is one.
    """

    __slots__ = (
        *("_below", "_copies", "_guards", "_look_up", "_marks", "_older", "_rest", "_taken"),
        *("overlay", "removes", "views"),
    )

    def __init__(
        self,
        operator: str,
        name: str,
        types: tuple[TypeInformation | None, ...],
        namespaced: bool = False,
    ) -> None:
        self._below: dict[Any, Any] = {}
        self._marks: set[Any] = set()
        #: the overlay before this one, and what is left of it; empty and None if all is merged
        self._older: dict[Any, Any] = {}
        self._rest: Iterator[tuple[Any, Any]] | None = None
        self._taken: _Taken | None = None
        #: copies of values that were handed out since the last picture was taken
        self._copies: dict[Any, Any] = {}
        #: returns the entry of a key that is not in the overlay
        self._look_up: Callable[[Any], Any] = self._below.get
        self.overlay = Overlay(self._look_up)
        self._guards = self.removes = False
        self.views: OverlayViews | None = None
        super().__init__(operator, name, "value", types, namespaced)

    @property
    def entries(self) -> dict[Any, Any]:
        """Return all entries."""
        self._merge_all()
        return self._below

    @entries.setter
    def entries(self, entries: dict[Any, Any]) -> None:
        self._below.clear()
        self._below.update(entries)

    @property
    def dirty(self) -> set[Any]:
        """Return the keys that changed since the last capture."""
        self._merge_all()
        return self._marks

    @dirty.setter
    def dirty(self, marks: set[Any]) -> None:
        self._marks = marks

    @property
    def changes(self) -> int:
        return len(self._marks) + len(self.overlay)

    @property
    def has_entries(self) -> bool:
        overlay = self.overlay
        places = chain(overlay, self._older, self._below)
        return any(overlay[key] is not None for key in places)

    @property
    def size(self) -> int:
        """Estimate the number of entries, without those that are new in the overlay."""
        sample = list(islice(self._older.items(), _SAMPLE))
        more = sum((value is not None) - (key in self._below) for key, value in sample)
        return len(self._below) + more * len(self._older) // max(len(sample), 1)

    def merge_some(self, count: int | None) -> None:
        """Merge entries of the previous overlay into the others; ``count``: how many, None: all."""
        if self._rest is None:
            return
        part = list(islice(self._rest, count))
        self._below.update(part)
        for key in [key for key, value in part if value is None]:
            del self._below[key]
        if count is None or len(part) < count:
            self._rest, self._older = None, {}
            self._look_up = self._below.get
            self._guard(self._guards)

    def _guard(self, guards: bool) -> None:
        """Set whether functions get copies of what is not in the overlay."""
        self._guards = guards
        self.overlay.__missing__ = self._hand_out if guards else self._look_up

    def _hand_out(self, key: Any) -> Any:
        """Return an entry that a picture may refer to; a copy, if it could be changed."""
        value = self._look_up(key)
        if type(value) in IMMUTABLE:
            return value
        copied = self._copies.get(key)
        if copied is None:
            copied = own_value(value)
            if copied is not value:
                self._copies[key] = copied
        return copied

    def _merge_all(self) -> None:
        self._copies.clear()
        if self.overlay:
            self._marks.update(self._replace_overlay())
        self.merge_some(None)

    def _replace_overlay(self) -> Overlay:
        """Start a new overlay; return the previous one, which must not change any more."""
        self.merge_some(None)
        old, self.removes = self.overlay, False
        old.__missing__ = self._below.get
        self._look_up = old.__getitem__
        self.overlay = Overlay(self._look_up)
        self._guard(self._guards)
        self._copies.clear()
        self._older, self._rest = old, iter(old.items())
        if self.views is not None:
            self.views.replace(self.overlay)
        return old

    def take_marks(self) -> set[Any]:
        self._taken = None
        if self._marks:
            return super().take_marks()
        removes = self.removes
        values: dict[Any, Any] = self._replace_overlay()
        marks = set(values)
        if removes:
            values = {key: value for key, value in values.items() if value is not None}
        self._taken = _Taken(marks, values)
        return marks

    def picture(self, marks: set[Any] | None) -> Table[set[Any]]:
        taken, self._taken = self._taken, None
        if self.hands_out:
            self._copies.clear()
            self._guard(True)
        if taken is not None and marks is taken.marks:
            return self.having(taken.values, only_marked=True)
        return super().picture(marks)

    def share(self, keys: Iterable[Any]) -> None:
        """Record nothing: what functions get is decided by where it is found."""

    def all_written(self) -> None:
        super().all_written()
        self._taken = None
        self._copies.clear()
        self._guard(False)

    def __copy__(self) -> ValueTable:
        """Return an ordinary table without entries; the caller sets them."""
        plain = ValueTable(self.operator, self.name, self.kind, (), self.namespaced)
        plain.serializers = self.serializers
        return plain
