"""The live updates of a page: ``GET /jobs/:id/live``.

A stream of server-sent events: at most one per second, when something has changed or ten seconds
have passed. The data of each event is a JSON object:

    version      counts the changes of the job
    job          the response of GET /jobs/:id
    epochs       those of the last seconds, as in GET /jobs/:id/epochs; a page ignores epochs that
                 it has already
    checkpoints  the counts of GET /jobs/:id/checkpoints
    changed      for "checkpoints", "exceptions", "attempts", "plan", "rescales" and "series": the
                 version of the last change, for "logs" the number of lines; a page requests these
                 again when the number has changed

All clients of a job get the same bytes, which are created once. A browser's ``EventSource`` cannot
send a token; a page with a token uses ``fetch``. With ``?events=N`` the stream ends after N events.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import msgspec

from holdfast.history.job import JobHistory
from holdfast.rest.errors import Refusal
from holdfast.rest.site import ServedJob
from holdfast.rest.views import checkpoints as checkpoint_views
from holdfast.rest.views import jobs as views

_PAUSE: Final = 1.0
_AT_LEAST_EVERY: Final = 10
_EPOCHS: Final = 100
_REMEMBERED: Final = 100
_RECENT_MS: Final = 5000
_KINDS: Final = {
    "checkpoints": ("CheckpointSeen",),
    "exceptions": ("AttemptFailed",),
    "attempts": ("AttemptBegan", "StateLoaded", "StartMeasured"),
    "plan": ("PlanMade",),
    "rescales": ("RescaleSeen",),
    "series": ("PointSeen",),
}


class Live:
    """The streams of all jobs."""

    def __init__(self, most: int) -> None:
        """Start with no streams; at most ``most`` are open at a time."""
        self._most = most
        self._open = 0
        self._ending: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._made: dict[str, tuple[int, float, bytes]] = {}

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Count a stream while it is open.

        Raises:
            Refusal: if the limit is reached.
        """
        if self._open >= self._most:
            message = (
                f"{self._most} clients receive live updates, which is the limit; close another "
                "page, or poll /jobs/:jobid"
            )
            raise Refusal(503, message)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def stream(self, job: ServedJob, events: int | None) -> AsyncIterator[bytes]:
        """Yield an event when something has changed, and at intervals if nothing has."""
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
        """End all streams, each with a last event; can be called from any thread."""
        if self._ending is not None:
            loop, ending = self._ending
            loop.call_soon_threadsafe(ending.set)

    def _event(self, job: ServedJob, version: int, anew: bool) -> bytes:
        """Return the current event; one that was just created for another client is reused."""
        made = self._made.get(job.history.id)
        now = time.monotonic()
        if made is None or (made[0] != version and (anew or now - made[1] > _PAUSE / 2)):
            state = job.history.look(live_state)
            state["changed"]["logs"] = 0 if job.logs is None else job.logs.total
            data = msgspec.json.encode(state)
            made = version, now, b"event: job\ndata: " + data + b"\n\n"
            if len(self._made) > _REMEMBERED:  # of jobs that have long ended
                self._made.clear()
            self._made[job.history.id] = made
        return made[2]


def live_state(history: JobHistory) -> dict[str, Any]:
    """Return the data of an event."""
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
