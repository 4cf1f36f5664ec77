"""What a page needs to stay up to date without reloading: ``GET /jobs/:id/live``.

A stream of server-sent events, at most one a second, and one when something has changed or ten
seconds have passed. The data of each is a JSON object:

    version      counts what has happened to the job
    job          as GET /jobs/:id answers
    epochs       those of the last seconds, as GET /jobs/:id/epochs has them; a page that knows an
                 epoch already passes over it
    checkpoints  the counts of GET /jobs/:id/checkpoints
    changed      for "checkpoints", "exceptions", "attempts", "plan" and "rescales": the version of
                 the last change; a page asks for these again when the number is another one

All clients of a job get the same bytes, which are made once. A browser's ``EventSource`` sends no
token; with one, a page reads the stream of ``fetch``. With ``?events=N`` the stream ends after N.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec

from holdfast.history.job import JobHistory
from holdfast.rest import checkpoint_views, views
from holdfast.rest.errors import Answer
from holdfast.rest.site import ServedJob

__all__ = ["Live"]

_PAUSE: Final = 1.0
_AT_LEAST_EVERY: Final = 10
_EPOCHS: Final = 100
_REMEMBERED: Final = 100
_RECENT_MS: Final = 5000
_KINDS: Final = {
    "checkpoints": ("CheckpointSeen",),
    "exceptions": ("AttemptFailed",),
    "attempts": ("AttemptBegan", "StateLoaded"),
    "plan": ("PlanMade",),
    "rescales": ("RescaleSeen",),
}


class Live:
    """The streams of all jobs."""

    def __init__(self, most: int) -> None:
        """Start with no streams; at most so many are open at a time."""
        self._most = most
        self._open = 0
        self._ending: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._made: dict[str, tuple[int, float, bytes]] = {}

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold the place of a stream while it is open.

        Raises:
            Answer: when there is none left.
        """
        if self._open >= self._most:
            message = (
                f"{self._most} clients follow jobs live already, which is the limit; close another "
                "page, or ask for /jobs/:jobid from time to time"
            )
            raise Answer(503, message)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def stream(self, job: ServedJob, events: int | None) -> AsyncIterator[bytes]:
        """Yield an event when something has changed, and once in a while if nothing has."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop(), asyncio.Event()
        _, ending = self._ending
        known, quiet, sent, last = -1, 0, 0, False
        while not last and sent != events:
            last, version = ending.is_set(), job.history.version
            if version != known or quiet >= _AT_LEAST_EVERY:
                yield self._event(job, version, anew=last)
                known, quiet, sent = version, 0, sent + 1
            if sent != events:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ending.wait(), _PAUSE)
                quiet += 1

    def close(self) -> None:
        """End all streams, each with what is new; from any thread."""
        if self._ending is not None:
            loop, ending = self._ending
            loop.call_soon_threadsafe(ending.set)

    def _event(self, job: ServedJob, version: int, anew: bool) -> bytes:
        """The event of now; what was made for another client within the last pause will do."""
        made = self._made.get(job.history.id)
        now = time.monotonic()
        if made is None or (made[0] != version and (anew or now - made[1] > _PAUSE / 2)):
            data = msgspec.json.encode(job.history.look(live_state))
            made = version, now, b"event: job\ndata: " + data + b"\n\n"
            if len(self._made) > _REMEMBERED:  # of jobs that have long ended
                self._made.clear()
            self._made[job.history.id] = made
        return made[2]


def live_state(history: JobHistory) -> dict[str, Any]:
    """What changes all the time."""
    latest = history.epochs[-1].started if history.epochs else 0
    recent = [one for one in history.epochs if one.started >= latest - _RECENT_MS][-_EPOCHS:]
    since = recent[0].epoch - 1 if recent else -1
    return {
        "version": history.version,
        "job": views.job_details(history),
        "epochs": views.epochs(history, since).epochs,
        "checkpoints": checkpoint_views.counts(history),
        "changed": {
            name: max(history.changed.get(kind, 0) for kind in kinds)
            for name, kinds in _KINDS.items()
        },
    }
