"""The channels between producer and consumer subtasks: what has arrived, and how much more may.

Invariant: what a producer has sent on a channel and its consumer has not taken is at most a window
of bytes and one block. Consequence: memory is bounded from end to end, and a slow consumer slows
its producers, and these theirs, up to the sources.

Invariant: after an aligned mark, nothing of its channel is taken before all channels have reached
that mark. Consequence: the state at the mark is that of all records before it, and of none after.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from holdfast.errors import InternalError
from holdfast.plan.model import Exchange
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.resident.messages import TIME_ONLY, Mark, decode_mark
from holdfast.runtime.resident.pace import ChannelWindows
from holdfast.runtime.wire.blocks import Block, Kind
from holdfast.runtime.wire.inbox import Producer

#: interval of the checks whether the attempt is over, while a producer waits, in seconds
_LOOK: Final = 1.0


class Leaving(BaseException):
    """The attempt is over. Unwinds a subtask from any point, through users' functions too."""


class Bell:
    """Wakes the one thread that waits; a ring while none waits ends the next wait at once."""

    def __init__(self) -> None:
        # NB: a lock is locked and released in a tenth of the time that an Event takes
        self._silence = threading.Lock()
        self._silence.acquire()
        self._rung = False

    def ring(self) -> None:
        """Wake the thread; cheap if it is awake."""
        if not self._rung:
            self._rung = True
            # two threads may ring at the same time and both get here
            with suppress(RuntimeError):
                self._silence.release()

    def wait(self, seconds: float | None) -> bool:
        """Wait for a ring since the last wait ended; return whether there was one."""
        timeout = -1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)
        rung = self._silence.acquire(timeout=timeout)
        # a ring after this ends the next wait; work that came before it is found without a ring
        self._rung = False
        return rung


class Credit:
    """The number of bytes that may still be sent on a channel."""

    def __init__(self, window: int) -> None:
        """Allow this many bytes to be in transit."""
        self._left = window
        self._changed = threading.Condition()
        self._over = False

    def acquire(self, size: int) -> float:
        """Wait until a block may be sent; return how long that took, in seconds.

        One block may exceed the window, so that any block can be sent, however large.

        Raises:
            Leaving: when the attempt is over.
        """
        with self._changed:
            waited = 0.0
            if self._left <= 0 or self._over:
                waited = self._wait()
            self._left -= size
            return waited

    def _wait(self) -> float:
        began = time.perf_counter()
        while self._left <= 0 and not self._over:
            self._changed.wait(_LOOK)
        if self._over:
            raise Leaving
        return time.perf_counter() - began

    def grant(self, size: int) -> None:
        """Add credit for bytes that the consumer has taken."""
        with self._changed:
            self._left += size
            self._changed.notify()

    def end(self) -> None:
        """Release all waiting threads."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


class Reached(NamedTuple):
    """All producers have reached the end of an epoch."""

    epoch: int


class _TimeMoved(Enum):
    TIME_MOVED = "a producer has said how far it is"


TIME_MOVED: Final = _TimeMoved.TIME_MOVED


class Inputs:
    """The input of a subtask, from each of its producers in the order in which it was sent.

    Any thread may put; one thread takes.
    """

    def __init__(self, producers: Iterable[Producer], put_back: Callable[[Producer, int], None]):
        """Expect these producers; ``put_back`` allows one of them to send this many bytes more."""
        self._producers = frozenset(producers)
        self._windows = ChannelWindows(self._producers, put_back)
        #: since when the consumer has been processing a block; None: it had nothing to do
        self._since: float | None = None
        self._arrived: deque[Block] = deque()
        #: what arrived after an aligned mark, by the producer that has to wait
        self._held: dict[Producer, list[Block]] = {}
        #: the producers that have reached the end of an epoch that others have not reached yet
        self._reached: dict[int, set[Producer]] = {}
        #: the last mark of each producer, with its watermarks
        self._said = dict.fromkeys(self._producers, Mark())
        self._next = dict.fromkeys(self._producers, 0)
        self._moved = True

    def put(self, block: Block) -> None:
        """Add a block that arrived."""
        self._arrived.append(block)

    def __bool__(self) -> bool:
        """Return whether something has arrived; it may be held back, though."""
        return bool(self._arrived)

    def take_moved(self) -> bool:
        """Return whether a producer has sent a new watermark or its end since the last call."""
        moved, self._moved = self._moved, False
        return moved

    @property
    def ended(self) -> bool:
        """Return whether no producer will send another record; true without producers."""
        return all(mark.ended for mark in self._said.values())

    def watermarks(self, exchange: Exchange) -> list[Watermark]:
        """Return the watermarks of the producers of an exchange."""
        return [
            _watermark(exchange, mark)
            for (level, subtask), mark in self._said.items()
            if level == exchange.source_level and subtask < exchange.source_parallelism
        ]

    def take(self) -> Block | Reached | _TimeMoved | None:
        """Return the next block of records, or the result of a mark; None if there is nothing.

        Raises:
            InternalError: when a block is missing, or comes from an unknown producer.
        """
        while self._arrived:
            block = self._arrived.popleft()
            header = block.header
            producer = (header.producer_level, header.producer)
            if producer in self._held:
                self._held[producer].append(block)
                continue
            self._check(producer, header.number)
            if header.kind == Kind.RECORDS:
                if self._since is None:
                    self._since = time.perf_counter()
                return block
            return self._hear(producer, decode_mark(block.data))
        self._since = None
        return None

    def done(self, block: Block) -> None:
        """Allow more to be sent, because the block that was taken last was processed."""
        header, now = block.header, time.perf_counter()
        producer = header.producer_level, header.producer
        self._windows.handled(producer, len(block.data), now - (self._since or now))
        self._since = now  # NB: the time until the next block is part of the consumer's pace

    def _check(self, producer: Producer, number: int) -> None:
        expected = self._next.get(producer)
        if number != expected:
            message = f"block {number} came from producer {producer}; expected {expected}"
            raise InternalError(message)
        self._next[producer] = number + 1

    def _hear(self, producer: Producer, mark: Mark) -> Reached | _TimeMoved:
        before, self._said[producer] = self._said[producer], mark
        if (mark.watermarks, mark.ended) != (before.watermarks, before.ended):
            self._moved = True
        if mark.epoch == TIME_ONLY:
            return TIME_MOVED
        reached = self._reached.setdefault(mark.epoch, set())
        reached.add(producer)
        if len(reached) < len(self._producers):
            if mark.aligned:
                self._held[producer] = []
            return TIME_MOVED
        del self._reached[mark.epoch]
        if mark.aligned:
            self._let_go()
        return Reached(mark.epoch)

    def _let_go(self) -> None:
        """Release the blocks that were held back, after all producers reached an aligned mark."""
        held = [block for blocks in self._held.values() for block in blocks]
        self._held.clear()
        self._arrived.extendleft(reversed(held))


def _watermark(exchange: Exchange, mark: Mark) -> Watermark:
    time = mark.watermarks.get(exchange.id, Watermark().time)
    return Watermark(idle=True) if time is None else Watermark(time)
