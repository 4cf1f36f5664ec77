"""Windows as they are explained to people: all records are kept, and each epoch is recomputed.

The model knows nothing of timers, state or namespaces. An epoch brings records, then the watermark
moves; it says what every window gives in each epoch, and which records are late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BEFORE_ALL = -(2**63)
END = 2**63 - 1

#: start and end
Span = tuple[int, int]
#: key, timestamp, value
Record = tuple[str, int, int]


@dataclass(frozen=True)
class Fired:
    """What a window gave: its key and span, and the values that its function was given."""

    key: str
    span: Span
    values: tuple[int, ...]


class TriggerModel:
    """The memory of a trigger for one window; this one waits for the end of the window."""

    def on_record(self, value: int, timestamp: int, end: int, watermark: int) -> bool:
        return end - 1 <= watermark

    def firings(self, end: int, before: int, now: int) -> int:
        """How often it fires when the watermark moves."""
        return int(before < end - 1 <= now)

    def absorb(self, other: Any) -> None:
        """Windows merge."""


@dataclass
class Continuous(TriggerModel):
    interval: int
    next: int | None = None

    def on_record(self, value: int, timestamp: int, end: int, watermark: int) -> bool:
        if end - 1 > watermark and self.next is None:
            self.next = min(timestamp - timestamp % self.interval + self.interval, end - 1)
        return super().on_record(value, timestamp, end, watermark)

    def firings(self, end: int, before: int, now: int) -> int:
        count = 0
        while self.next is not None and self.next <= now and self.next < end - 1:
            count += 1
            self.next = min(self.next + self.interval, end - 1)
        if not before < end - 1 <= now:
            return count
        self.next = None
        return count + 1

    def absorb(self, other: Any) -> None:
        self.next = min((n for n in (self.next, other.next) if n is not None), default=None)


@dataclass
class Counting(TriggerModel):
    limit: int
    count: int = 0

    def on_record(self, value: int, timestamp: int, end: int, watermark: int) -> bool:
        self.count += 1
        if self.count < self.limit:
            return False
        self.count = 0
        return True

    def firings(self, end: int, before: int, now: int) -> int:
        return 0

    def absorb(self, other: Any) -> None:
        self.count += other.count


@dataclass
class Delta(Counting):
    """Fires when a value is further than the limit from that of the last firing."""

    last: int | None = None

    def on_record(self, value: int, timestamp: int, end: int, watermark: int) -> bool:
        before, self.last = self.last, value if self.last is None else self.last
        if before is None or abs(value - before) <= self.limit:
            return False
        self.last = value
        return True


class Never(TriggerModel):
    def on_record(self, value: int, timestamp: int, end: int, watermark: int) -> bool:
        return False

    def firings(self, end: int, before: int, now: int) -> int:
        return 0


@dataclass
class WindowModel:
    """One window of one key: its records that are left, and its trigger's memory."""

    key: str
    span: Span
    trigger: TriggerModel
    records: list[Record] = field(default_factory=list)


@dataclass
class Windows:
    """All windows of an operator.

    Attributes:
        spans: the windows of a record, each as a span.
        merging: whether windows that overlap or touch become one.
        purging: whether a window that fires loses its records.
        evict: what is left of the records of a window that fires, before or after its function.
    """

    spans: Callable[[Record], list[Span]]
    trigger: Callable[[], TriggerModel] = TriggerModel
    lateness: int = 0
    merging: bool = False
    purging: bool = False
    evict: Callable[[list[Record]], list[Record]] | None = None
    evict_after: bool = False
    watermark: int = BEFORE_ALL
    live: list[WindowModel] = field(default_factory=list)

    def epoch(self, records: list[Record], watermark: int) -> tuple[list[Fired], list[Record]]:
        """Take an epoch's records, then move the watermark; returns firings and late records."""
        fired: list[Fired] = []
        late: list[Record] = []
        for record in records:
            self._take(record, fired, late)
        if watermark > self.watermark:
            self._advance(watermark, fired)
        return fired, late

    def _take(self, record: Record, fired: list[Fired], late: list[Record]) -> None:
        key, timestamp, value = record
        skipped = True
        for span in self.spans(record):
            window = self._window(key, span)
            if window is not None:
                skipped = False
                window.records.append(record)
                end = window.span[1]
                if window.trigger.on_record(value, timestamp, end, self.watermark):
                    self._fire(window, fired)
        if skipped and timestamp + self.lateness <= self.watermark:
            late.append(record)

    def _window(self, key: str, span: Span) -> WindowModel | None:
        """The live window for a record; None if it is over."""
        same = [w for w in self.live if w.key == key and self._belongs(w.span, span)]
        same.sort(key=lambda window: window.span)
        if not same:
            if self._is_over(span[1], self.watermark):
                return None
            self.live.append(WindowModel(key, span, self.trigger()))
            return self.live[-1]
        first, *others = same
        for other in others:
            first.records += other.records
            first.trigger.absorb(other.trigger)
            self.live.remove(other)
        spans = [span, *(w.span for w in same)]
        first.span = min(s[0] for s in spans), max(s[1] for s in spans)
        return first

    def _belongs(self, known: Span, span: Span) -> bool:
        touches = known[0] <= span[1] and known[1] >= span[0]
        return touches if self.merging else known == span

    def _advance(self, watermark: int, fired: list[Fired]) -> None:
        before, self.watermark = self.watermark, watermark
        for window in sorted(self.live, key=lambda w: w.span[1]):
            for _ in range(window.trigger.firings(window.span[1], before, watermark)):
                self._fire(window, fired)
        self.live = [w for w in self.live if not self._is_over(w.span[1], watermark)]

    def _is_over(self, end: int, watermark: int) -> bool:
        return end - 1 + self.lateness <= watermark

    def _fire(self, window: WindowModel, fired: list[Fired]) -> None:
        if not window.records:
            return
        evict = self.evict or (lambda records: records)
        left = window.records if self.evict_after else evict(window.records)
        values = tuple(value for _, _, value in left)
        fired.append(Fired(window.key, window.span, values))
        window.records = list(evict(left) if self.evict_after else left)
        if self.purging:
            window.records = []


def watermarks(epochs: list[list[Record]], bound: int) -> list[int]:
    """The watermark after each epoch, with a bound for how much out of order records are."""
    seen: list[int] = []
    result = []
    for epoch in epochs:
        seen += [timestamp for _, timestamp, _ in epoch]
        result.append(max(seen) - bound - 1 if seen else BEFORE_ALL)
    result[-1] = END
    return result
