"""The records that a run reads of a source without an end: the same ones in all runs.

With ``--records N``, a subtask reads its share of the first N records of a source. How many of them
a subtask has read is a part of its position, so this survives failures. With another number of
subtasks the shares would have other records, so such a source keeps the number that it has.

A subtask may have fewer records than its share, and never say so: nothing is in the file that it
watches. The first run finds out, and writes it down for the others:

    <shared>/shares/<source>-<n>   how many records subtask n of a source reads
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: after so many seconds without a record, a subtask has no more, if another has read its share
SILENCE: Final = 5.0


@dataclass(frozen=True)
class FirstRecords:
    """The first records of a source.

    Attributes:
        directory: what all runs share.
        source: the name of the source in the names of files.
        records: how many there are, of all subtasks together.
    """

    directory: str
    source: str
    records: int

    def share(self, subtask: int, parallelism: int) -> RecordShare:
        """Return the share of a subtask."""
        most = self.records // parallelism + (subtask < self.records % parallelism)
        return RecordShare(Path(self.directory) / "shares", self.source, subtask, most)


class RecordShare:
    """How many records a subtask reads."""

    def __init__(self, directory: Path, source: str, subtask: int, most: int) -> None:
        """Read at most so many, or as many as the first run has found."""
        self._directory = directory
        self._source = source
        self._path = directory / f"{source}-{subtask}"
        self._most = most
        self._known = False
        with suppress(OSError, ValueError):
            self._most, self._known = int(self._path.read_text()), True
        #: the last number of records, and since when it is the same
        self._silent = (-1, 0.0)

    def left(self, count: int) -> int:
        """Return how many records may still be read after so many."""
        return max(0, self._most - count)

    def is_read(self, count: int, ended: bool = False) -> bool:
        """Return whether there are no more records for this subtask after so many.

        ``ended``: the source says so.
        """
        if not self._known and (ended or not self.left(count) or self._has_no_more(count)):
            self._settle(count)
        return not self.left(count)

    def _has_no_more(self, count: int) -> bool:
        now, (before, since) = time.monotonic(), self._silent
        if count != before:
            self._silent = (count, now)
            return False
        return now - since > SILENCE and any(self._directory.glob(f"{self._source}-*[0-9]"))

    def _settle(self, count: int) -> None:
        self._most, self._known = count, True
        with suppress(OSError):  # on another machine
            self._directory.mkdir(parents=True, exist_ok=True)
            draft = f"{self._path}.draft"
            Path(draft).write_text(str(count))
            os.replace(draft, self._path)
