"""The event loop of a subtask, for its asynchronous functions.

It runs in the thread of the subtask, and only while somebody waits: for room when as many calls are
under way as may be, and for all of them at the end of an epoch. So no locks are needed, and no
record costs a switch between threads. Between epochs it stands still.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

#: how long tasks may take to end when they are told to
_PATIENCE = 1.0


class EventLoop:
    """An asyncio loop that is made when it is needed first."""

    def __init__(self) -> None:
        """Make nothing yet."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop itself."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def wait(self, reached: Callable[[], bool]) -> None:
        """Run until that is so; whoever makes it so calls ``wake``."""
        while not reached():
            self.loop.run_forever()

    def run_for(self, seconds: float) -> None:
        """Run for so long, or until somebody calls ``wake``."""
        end = self.loop.call_later(seconds, self.loop.stop)
        self.loop.run_forever()
        end.cancel()

    def wake(self) -> None:
        """Let the one that waits look again."""
        if not self._ending:
            self.loop.stop()

    def call(self, function: Callable[[], Any]) -> None:
        """Call a function within the running loop, and await what it returns if that can be."""

        async def within() -> None:
            result = function()
            if inspect.isawaitable(result):
                await result

        self.loop.run_until_complete(within())

    def close(self) -> None:
        """End all that is under way, and the loop."""
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
