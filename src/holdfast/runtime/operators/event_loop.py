"""The event loop of a subtask, for its asynchronous functions.

It runs in the thread of the subtask, and only while a caller waits: for capacity when too many
calls are running, and for all of them at the end of an epoch. So no locks are needed, and no record
costs a switch between threads. Between epochs it does not run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

#: how long cancelled tasks may take to end, in seconds
_PATIENCE = 1.0


class EventLoop:
    """An asyncio loop that is created when it is first needed."""

    def __init__(self) -> None:
        """Start without a loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop; create it if needed."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def wait(self, reached: Callable[[], bool]) -> None:
        """Block until `reached()` is true. Callers that make it true must call `wake()`."""
        while not reached():
            self.loop.run_forever()

    def run_for(self, seconds: float) -> None:
        """Run for this long, or until ``wake`` is called."""
        end = self.loop.call_later(seconds, self.loop.stop)
        self.loop.run_forever()
        end.cancel()

    def wake(self) -> None:
        """Let the waiting caller check its condition again."""
        if not self._ending:
            self.loop.stop()

    def call(self, function: Callable[[], Any]) -> None:
        """Call a function within the running loop, and await its result if it is awaitable."""

        async def within() -> None:
            result = function()
            if inspect.isawaitable(result):
                await result

        self.loop.run_until_complete(within())

    def close(self) -> None:
        """Cancel all running tasks, and close the loop."""
        if self._loop is None:
            return
        self._ending = True
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_PATIENCE))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._loop = None
