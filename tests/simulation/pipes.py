"""What is on its way between the processes of a resident cluster, and how much may be.

Between two processes messages come in the order in which they were sent; between others, in any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from holdfast.runtime import work
from holdfast.runtime.resident import carrier, channels, intake, pace, states, subtask
from holdfast.runtime.resident.channels import Credit, Leaving
from holdfast.runtime.resident.messages import Frame, Say, Wire
from holdfast.runtime.resident.states import StateWriter
from tests.simulation import stage
from tests.simulation.world import World


class Gone:
    """Comes last: the other side has hung up, or is no more."""


class Pipe:
    """One direction of a connection.

    Attributes:
        cut: nothing comes through any more, and nobody is told.
        held_until: what is on its way comes after so many moments of the fleet.
    """

    def __init__(self, source: str, target: str, deliver: Callable[[Frame | Gone], None]) -> None:
        self.name = f"from {source} to {target}"
        self.frames: deque[Frame | Gone] = deque()
        self.cut = False
        self.held_until = 0
        self._ended = False
        self._deliver = deliver

    def put(self, frame: Frame) -> None:
        if self._ended:
            raise ConnectionError("the other side has gone")
        self.frames.append(frame)

    def deliver(self) -> None:
        self._deliver(self.frames.popleft())

    def end(self, lost: int = 0) -> None:
        """Nothing more is sent; of what is on its way the last messages are lost."""
        for _ in range(min(lost, len(self.frames))):
            self.frames.pop()
        if not self._ended:
            self.frames.append(Gone())
        self._ended = True

    def close(self) -> None:
        """Nobody takes what comes; who sends is told."""
        self.frames.clear()
        self._ended = True


class SimulatedWire(Wire):
    """Sends into a pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def send(self, kind: Say, head: bytes = b"", data: Any = b"") -> None:
        self._pipe.put(Frame(kind, memoryview(bytes(head)), memoryview(bytes(data))))

    def close(self) -> None:
        self._pipe.end()


class WaitsBefore(Credit):
    """Lets nobody wait in the middle of a step: the fleet looks for room before it."""

    @property
    def has_room(self) -> bool:
        return self._left > 0 or self._over

    def acquire(self, size: int) -> float:
        if self._over:
            raise Leaving
        self._left -= size
        return 0.0


class WaitingWriter(StateWriter):
    """Writes when the fleet says so."""

    def _wake(self) -> None:
        pass

    @property
    def is_waiting(self) -> bool:
        return not (self._closed or self._captures.empty())

    def write_next(self) -> None:
        item = self._captures.get_nowait()
        if item is not None:
            self._store(*item)

    def keep_writing(self) -> Callable[[], None] | None:
        """What goes on, when the writer is closed, with the state that it is writing, if any."""
        item = None if self._captures.empty() else self._captures.get_nowait()
        return None if item is None else lambda: self._store(*item)


@contextmanager
def small_world(world: World) -> Iterator[None]:
    """The time that subtasks measure is the world's; they read and send few records at once."""
    random = world.random
    window, results = random.choice((60, 300, 5000)), random.choice((60, 300, 5000))
    time = SimpleNamespace(perf_counter=lambda: stage.world().ticks, time=lambda: 0.0)
    with ExitStack() as patches:
        for module, name, value in (
            (subtask, "time", time),
            (work, "time", time),
            (intake, "time", time),
            (intake, "_READ", random.choice((1, 2))),
            (states, "time", time),
            (carrier, "Credit", WaitsBefore),
            (channels, "time", time),
            (carrier, "SMALLEST_WINDOW", window),
            (pace, "SMALLEST_WINDOW", window),
            (pace, "window_of", lambda producers: window),
            (carrier, "_RESULTS", results),
        ):
            patches.enter_context(patch.object(module, name, value))
        yield
