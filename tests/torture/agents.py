"""Ends the agents that a test has started in its own process."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.witness import until


@contextmanager
def agents_ended(run: Path) -> Iterator[None]:
    """Delete the directory of a run afterwards: its agents end when it is gone."""
    try:
        yield
    finally:
        until(lambda: _is_deleted(run))
        until(lambda: all(thread.name != "holdfast-agent" for thread in threading.enumerate()))


def _is_deleted(directory: Path) -> bool:
    """Delete it once more: an agent may be writing its file just now."""
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()
