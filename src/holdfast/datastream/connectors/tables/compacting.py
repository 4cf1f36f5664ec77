"""Compaction of a table beside the commits of a sink: many small files become few large ones.

A compaction adds and removes no row. It may fail, or be killed anywhere: the table is then as it
was before, and the next one starts anew. So its failures are logged, and the job goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.printable import get_logger

#: the end of a job waits so many seconds for a compaction that is running
_LONGEST_WAIT: Final = 60.0
_logger = get_logger(__name__)


@dataclass(frozen=True)
class TableCompaction:
    """When a table is compacted.

    Attributes:
        commits: after how many commits of the sink.
        target_bytes: smaller files are put together, up to this size.
    """

    commits: int
    target_bytes: int

    @staticmethod
    def every(commits: int, target_bytes: int) -> TableCompaction:
        """Return the settings after a check.

        Raises:
            ValueError: when there are no commits, or no bytes.
        """
        if commits < 1:
            message = f"compact_every: expected at least 1 commit; got {commits}"
            raise ValueError(message)
        if target_bytes < 1:
            message = f"compact_every: expected files of at least 1 byte; got {target_bytes}"
            raise ValueError(message)
        return TableCompaction(commits, target_bytes)


class CompactionThread:
    """Runs one compaction at a time, in a thread, so that commits do not wait for it."""

    def __init__(self, table: str, compact: Callable[[], None]) -> None:
        """Take the name of the table, for messages, and what compacts it."""
        self._table = table
        self._compact = compact
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        """Compact; return False if the last compaction is still running."""
        if self._thread is not None and self._thread.is_alive():
            return False
        # NB: a daemon, or a request that hangs would keep the process alive
        self._thread = threading.Thread(target=self.run, name="compaction", daemon=True)
        self._thread.start()
        return True

    def run(self) -> None:
        """Compact now. A failure is logged: the table is as it was, and the job goes on."""
        try:
            self._compact()
        except Exception as error:
            _logger.warning(
                "the compaction of %s failed, and is tried again later; no row is lost or "
                "doubled: %s: %s",
                self._table,
                type(error).__name__,
                error,
            )

    def wait(self) -> None:
        """Wait for a compaction that is running, but not for ever."""
        if self._thread is not None:
            self._thread.join(_LONGEST_WAIT)
