"""`Column`: the values of one state, of all keys of an operator.

A slot without a value holds the start value: the default, or what stands for none. So reading and
reducing need not ask which keys have a value.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from holdfast.state.columns.forms import ValueForm
from holdfast.state.columns.growing import Array, Mask, Slots, grown


class Life(Protocol):
    """The time-to-live of a state; see `holdfast.state.live.ttl.lifetime`."""

    on_read: bool
    returns_expired: bool
    accesses: int

    def clock(self) -> int: ...

    def deadline(self) -> int: ...


class Rows(NamedTuple):
    """Some rows of a column, as they were at one time.

    Attributes:
        slots: where they are; None: at all places, also at those without a value.
        present: which of the slots have a value.
        stamps: when each was last accessed; None if values do not expire.
    """

    slots: Slots | None
    values: Array
    present: Mask
    stamps: Array | None

    def with_slots(self) -> tuple[Rows, Slots]:
        """Return the rows, of all places only those with a value, and their slots."""
        if self.slots is not None:
            return self, self.slots
        slots = np.flatnonzero(self.present)
        stamps = None if self.stamps is None else self.stamps[slots]
        return Rows(slots, self.values[slots], self.present[slots], stamps), slots


class Column:
    """The values of one state by slot, with a mark on each that changed.

    Attributes:
        present: per slot, whether it has a value.
        dirty: per slot, whether it changed since the last capture.
        life: its time-to-live; None if values do not expire.
    """

    def __init__(self, form: ValueForm, default: Any = None, expires: bool = False) -> None:
        """Hold values of a form; ``default``: a value in this form, or None."""
        self.form = form
        self.has_default = default is not None
        self.start = default if self.has_default else form.blank
        self.life: Life | None = None
        self.expires = expires
        self.clear()

    def clear(self) -> None:
        """Forget all values, and which of them changed."""
        self.values: Array = np.empty(0, self.form.dtype)
        self.present: Mask = np.zeros(0, np.bool_)
        self.dirty: Mask = np.zeros(0, np.bool_)
        self.stamps: Array | None = np.zeros(0, np.int64) if self.expires else None
        self._used = 0

    @property
    def count(self) -> int:
        """Return how many keys have a value."""
        return int(np.count_nonzero(self.present))

    @property
    def nbytes(self) -> int:
        """Return the bytes that the arrays take, without objects in them."""
        arrays = (self.values, self.present, self.dirty, self.stamps)
        return sum(array.nbytes for array in arrays if array is not None)

    def reserve(self, count: int) -> None:
        """Make room for as many slots."""
        if count > len(self.present):
            used = self._used
            self.values = grown(self.values, used, count, self.start)
            self.present = grown(self.present, used, count, 0)
            self.dirty = grown(self.dirty, used, count, 0)
            if self.stamps is not None:
                self.stamps = grown(self.stamps, used, count, 0)
        self._used = max(self._used, count)

    # Reading.

    def read(self, slots: Slots) -> tuple[Array, Mask]:
        """Return the values of slots, and which of them are there; this is an access."""
        life = self.life
        if life is None:
            return self.values[slots], self.present[slots]
        life.accesses += len(slots)
        values, valid = self.values[slots], self.present[slots]
        over = self._over(slots)
        if not life.returns_expired:
            values[over], valid = self.start, valid & ~over
        self.drop(slots[over])
        if life.on_read:
            self._renew(slots[self.present[slots]])
        return values, valid

    def _over(self, slots: Slots) -> Mask:
        assert self.life is not None
        assert self.stamps is not None
        over: Mask = self.present[slots] & (self.stamps[slots] <= self.life.deadline())
        return over

    def _renew(self, slots: Slots) -> None:
        assert self.life is not None
        assert self.stamps is not None
        now = self.life.clock()
        old = slots[self.stamps[slots] != now]
        self.stamps[old], self.dirty[old] = now, True

    # Changing.

    def begin(self, slots: Slots) -> None:
        """Remove the values of slots that have expired, before others are built on them."""
        if self.life is not None:
            self.drop(slots[self._over(slots)])

    def written(self, slots: Slots) -> None:
        """Record that slots have new values."""
        self.present[slots] = True
        self.dirty[slots] = True
        if self.life is not None and self.stamps is not None:
            self.life.accesses += len(slots)
            self.stamps[slots] = self.life.clock()

    def drop(self, slots: Slots) -> None:
        """Remove the values of slots."""
        gone = slots[self.present[slots]]
        if len(gone):
            self.values[gone] = self.start
            self.present[gone] = False
            self.dirty[gone] = True

    def load(self, slots: Slots, values: Array, stamps: Array | None) -> None:
        """Set the values of slots from a file, without a mark."""
        self.values[slots] = values
        self.present[slots] = True
        if self.stamps is not None and stamps is not None:
            self.stamps[slots] = stamps

    def unload(self, slots: Slots) -> None:
        """Remove the values of slots as a file says, without a mark."""
        self.values[slots] = self.start
        self.present[slots] = False

    # Clean-up.

    def expired(self, start: int, end: int) -> tuple[Slots, int]:
        """Return the slots of a range whose values have expired, and the oldest of other times."""
        assert self.life is not None
        assert self.stamps is not None
        slots = np.flatnonzero(self.present[start:end]) + start
        stamps = self.stamps[slots]
        over = stamps <= self.life.deadline()
        kept = stamps[~over]
        return slots[over], int(kept.min()) if len(kept) else self.life.clock()

    # Captures.

    def take(self, slots: Slots | None) -> Rows:
        """Return a copy of the rows of slots; None: of all."""
        # NB: a copy of everything takes much less time than picking what is there
        which: Any = slice(self._used) if slots is None else slots
        stamps = None if self.stamps is None else self.stamps[which].copy()
        return Rows(slots, self.values[which].copy(), self.present[which].copy(), stamps)

    def renumber(self, kept: Slots) -> None:
        """Keep only the rows of these slots, in this order."""
        self.values = self.values[kept]
        self.present = self.present[kept]
        self.dirty = self.dirty[kept]
        self.stamps = None if self.stamps is None else self.stamps[kept]
        self._used = len(kept)
