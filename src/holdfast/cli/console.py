"""What ``holdfast run`` says about the jobs of a program, on standard error.

The lines are made from the events that the driver records, so they are the same on every engine.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Final

import click

from holdfast.cli.running import duration_of
from holdfast.errors import HoldfastError, first_line
from holdfast.history import events
from holdfast.history.job import ENDED, JobHistory
from holdfast.history.watchers import watching
from holdfast.printable import counted, printable, printable_lines

#: the logger whose warnings say the same as the lines here
_SAME: Final = "holdfast.driver.recording"
#: how many lines of a failure are shown: of its beginning, and of its end
_FIRST_LINES: Final = 15
_LAST_LINES: Final = 25
_FAILED: Final = "FAILED"
_ENDS: Final = {"FINISHED": "has finished", "CANCELED": "was cancelled", _FAILED: "has failed"}


class Console:
    """Prints lines about jobs; remembers how the last one failed."""

    def __init__(self) -> None:
        """Start with nothing said."""
        #: the failure that was shown last, if it was shown in full
        self._shown: str | None = None

    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Print what happens to the jobs of this process, in this context.

        Warnings of the log that say the same are not printed by a program that has not configured
        its log. Handlers that a program has added get them.
        """
        default = logging.lastResort
        if default is not None:
            default.addFilter(_is_not_told_here)
        try:
            with watching(self._tell):
                yield
        finally:
            if default is not None:
                default.removeFilter(_is_not_told_here)

    def say(self, line: str) -> None:
        """Print a line, and more if it has several."""
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            click.echo(f"holdfast: {printable_lines(line)}", err=True)

    def brief(self, error: HoldfastError) -> str:
        """Return the message of an error; only its first line if all of it was shown just now."""
        text = str(error).strip()
        is_long = text != first_line(error)
        return f"{first_line(error)} (see above)" if is_long and text == self._shown else text

    def _tell(self, history: JobHistory, event: events.Event) -> None:
        for line in lines_about(history, event):
            self.say(line)
        if isinstance(event, events.AttemptFailed):
            self._shown = None if _is_known(history, event) else event.trace


def lines_about(history: JobHistory, event: events.Event) -> Iterator[str]:
    """Yield what to say about the last event of a job: mostly nothing."""
    job = f"job '{printable(history.name)}'"
    if event is not history.served and not history.attempts:
        return  # it was never started; its program gets the error
    match event:
        case events.PageServed():
            yield f"{job} is shown at {history.page}"
        case events.AttemptBegan(number=0):
            yield f"{job} starts {printable(event.origin_with_path)}"
        case events.AttemptFailed():
            yield f"{job} {_failure(history, event)}"
        case events.RescaleSeen(ended=int()):
            yield f"{job} {_rescale(event)}"
        case events.StatusChanged() if event.status in ENDED:
            yield f"{job} {_end(event)} after {duration_of(event.time - history.started)}"


def _end(event: events.StatusChanged) -> str:
    if event.savepoint is not None:
        return f"was stopped with savepoint {printable(event.savepoint)}"
    return _ENDS[event.status]


def _rescale(event: events.RescaleSeen) -> str:
    if event.failure is not None:
        slots = counted(event.slots_after, "task slot")
        return f"was not changed to {slots}: {printable(event.failure)}"
    wanted, after = event.slots_desired, event.slots_after
    fewer = "" if after == wanted else f"; {wanted} are wanted"
    return f"runs on {counted(after, 'task slot')} instead of {event.slots_before}{fewer}"


def _failure(history: JobHistory, event: events.AttemptFailed) -> str:
    """Return the text about a failure: in full the first time, in one line when it comes again."""
    if _is_known(history, event):
        return f"failed again: {printable(event.message)}; {_what_follows(event)}"
    shown = [*_shortened(event.trace.splitlines()), f"=> {_what_follows(event)}"]
    if event.restart is not None and history.page is not None:
        shown.append(f"=> all failures are at {history.page}")
    return "failed: " + "\n".join(f"  {line}".rstrip() for line in shown).lstrip()


def _is_known(history: JobHistory, event: events.AttemptFailed) -> bool:
    """Return whether the same failure has occurred before."""
    before = history.look(lambda told: [one for one in told.failures if one is not event])
    return _identity(event) in map(_identity, before)


def _identity(event: events.AttemptFailed) -> tuple[str, str | None]:
    """Return what two failures have in common that are shown once."""
    return event.error, event.task or event.message


def _what_follows(event: events.AttemptFailed) -> str:
    reason = printable(event.reason)
    if event.restart is None:
        return f"the job ends: {reason}" if reason else "the job ends"
    again = f" ({reason})" if reason else ""
    return f"it restarts in {event.restart / 1000:.1f} s, {event.restart_from}{again}"


def _shortened(lines: list[str]) -> list[str]:
    dropped = len(lines) - _FIRST_LINES - _LAST_LINES
    if dropped <= 1:
        return lines
    return [*lines[:_FIRST_LINES], f"... {dropped} lines ...", *lines[-_LAST_LINES:]]


def _is_not_told_here(record: logging.LogRecord) -> bool:
    return record.name != _SAME
