"""Watchers of the jobs of this process: they are called with each event that is recorded.

A command that runs a program in its own process sees the jobs of the program this way, whatever
engine runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.history.events import Event
from holdfast.history.job import JobHistory
from holdfast.printable import get_logger

_logger = get_logger(__name__)

#: called with the history of a job and its last event, in the thread that recorded the event
Watcher = Callable[[JobHistory, Event], None]

_watchers: Final[list[Watcher]] = []


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Call a watcher for the events of all jobs of this process, in this context."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def tell_watchers(history: JobHistory, event: Event) -> None:
    """Call all watchers; if one fails, the job continues."""
    for watcher in tuple(_watchers):
        try:
            watcher(history, event)
        except Exception as error:
            _logger.warning("a watcher of job '%s' has failed: %s", history.name, error)
