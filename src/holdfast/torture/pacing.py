"""Slows sources down while faults strike, and keeps them from ending before the last one.

Otherwise most jobs would have ended before the second fault. The pace is in a file of the run:

    <run>/pace.json   {"rate": 25.0, "process": 123}   records per second and subtask, and
                                                       sources do not end while the process lives
                      no such file                     as fast as possible, to the end

A subtask notes how many records it has read in all. That number is a part of its position, so it
goes back with it.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_FILE: Final = "pace.json"
#: interval of reading the pace, and of noting progress, in seconds
_LOOK: Final = 0.05
_NOTE: Final = 0.1
#: a source that was waiting reads what this many seconds allow at once
_BURST: Final = 0.2


def set_pace(run: Path, rate: float | None) -> None:
    """Set how many records a subtask reads per second; None: as many as it can, to the end."""
    path = run / _FILE
    if rate is None:
        path.unlink(missing_ok=True)
        return
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({"rate": rate, "process": os.getpid()}))
    draft.replace(path)


def records_read(run: Path) -> int:
    """Return how many records all sources have read, as far as they noted it."""
    total = 0
    for path in (run / "read").iterdir():
        with suppress(OSError, ValueError):
            total += int(path.read_text())
    return total


class Pace:
    """The pace of one source subtask.

    Attributes:
        count: how many records it has read.
    """

    def __init__(self, run: str, subtask: str) -> None:
        """Read the pace of a run; ``subtask`` is the name of the file with its progress."""
        self.count = 0
        self._file = os.path.join(run, _FILE)
        self._note = os.path.join(run, "read", subtask)
        self._rate: float | None = None
        self._looked = -1.0
        self._noted = (-1.0, -1)
        #: how many records may be read now, as of when
        self._room = 1.0
        self._as_of = time.monotonic()

    @property
    def held(self) -> bool:
        """Return whether the source must not end yet."""
        return self._current() is not None

    def room(self) -> int | None:
        """Return how many records may be read now; None: any number.

        It is below 0 after more records were read at once.
        """
        rate = self._current()
        if rate is None:
            return None
        now = time.monotonic()
        most = max(1.0, rate * _BURST)
        # NB: what was read without a limit does not count for long
        self._room = min(most, max(-most, self._room) + (now - self._as_of) * rate)
        self._as_of = now
        return int(self._room)

    def take(self, records: int) -> None:
        """Count records that were read."""
        self.count += records
        self._room -= records
        self.note()

    def note(self, at_once: bool = False) -> None:
        """Write down how many records were read, now and then."""
        now, (when, count) = time.monotonic(), self._noted
        if count == self.count or (now - when < _NOTE and not at_once):
            return
        self._noted = (now, self.count)
        with suppress(OSError):  # on another machine
            draft = f"{self._note}.draft"
            Path(draft).write_text(str(self.count))
            os.replace(draft, self._note)

    def _current(self) -> float | None:
        now = time.monotonic()
        if now - self._looked > _LOOK:
            self._looked = now
            try:
                pace = json.loads(Path(self._file).read_text())
                # NB: nobody will ever release the sources of a run whose torture was killed
                os.kill(pace["process"], 0)
                self._rate = float(pace["rate"])
            except (OSError, ValueError):
                self._rate = None
        return self._rate
