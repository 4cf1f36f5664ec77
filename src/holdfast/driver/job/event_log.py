"""The last events and instructions of a job's machine, for the message of an internal error."""

from __future__ import annotations

from collections import deque
from typing import Final

from holdfast.driver.job_events import JobEvent, JobInstruction

#: how many events and instructions are kept
_LOGGED: Final = 1000
_TITLE: Final = "Last events and instructions of the job:"
#: maximum length of each of them in the message
_LONGEST: Final = 500


class EventLog(deque[JobEvent | JobInstruction]):
    """The last events and instructions, oldest first."""

    def __init__(self) -> None:
        """Start with none."""
        super().__init__(maxlen=_LOGGED)

    def add_to(self, error: BaseException) -> None:
        """Add the log to an error as a note, unless it has it already."""
        if not any(note.startswith(_TITLE) for note in getattr(error, "__notes__", ())):
            # NB: a copy, which is made in one step: another thread may add an event meanwhile
            error.add_note("\n".join([_TITLE, *(repr(entry)[:_LONGEST] for entry in tuple(self))]))
