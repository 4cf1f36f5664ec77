"""Memory and processor time of a program's processes, by what they are: driver, JVM, workers.

Memory is the proportional share (PSS) where the system tells it: pages that forked workers share
count once in the sum, not once for each worker. Elsewhere it is the resident set.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

__all__ = ["DRIVER", "JVM", "WORKERS", "Samples", "Usage", "sampled", "usage_of"]

DRIVER = "driver"
JVM = "jvm"
WORKERS = "workers"

_COMMAND = ["ps", "-axo", "pid=,ppid=,rss=,time=,comm="]
_KILOBYTES = 1024


class Usage(NamedTuple):
    """Memory in MB, and the processor time so far in seconds, of some processes together."""

    mb: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: object) -> Usage:  # type: ignore[override]
        assert isinstance(other, Usage)
        return Usage(self.mb + other.mb, self.cpu + other.cpu)


def usage_of(root: int, listing: str | None = None) -> dict[str, Usage]:
    r"""Measure a process and those below it.

    Args:
        root: The driver.
        listing: What to use instead of a call of ``ps``.

    >>> usage_of(-10, "-10 1 2048 00:01 python\n-11 -10 1024 01:00 java")[JVM]
    Usage(mb=1.0, cpu=60.0)
    """
    if listing is None:
        listing = subprocess.run(_COMMAND, capture_output=True, text=True, check=True).stdout
    rows = {int(line.split(None, 1)[0]): line.split(None, 4)[1:] for line in listing.splitlines()}
    total = {DRIVER: Usage(), JVM: Usage(), WORKERS: Usage()}
    for process in _below(root, {each: int(row[0]) for each, row in rows.items()}):
        _, kilobytes, cpu, command = rows[process]
        kind = DRIVER if process == root else _kind(command)
        if kind is not None:
            total[kind] += Usage(
                _shared_out(process) or int(kilobytes) / _KILOBYTES,
                _ticked(process) or _seconds(cpu),
            )
    return total


def _below(root: int, parents: dict[int, int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for each, parent in parents.items():
        children.setdefault(parent, []).append(each)
    found = [root] if root in parents else []
    for each in found:
        found.extend(children.get(each, []))
    return found


def _kind(command: str) -> str | None:
    # For a moment, a command that the JVM starts has the name of a thread: it does not count.
    name = os.path.basename(command.strip()).lower()
    if name == "java":
        return JVM
    return WORKERS if name.startswith("python") else None


def _shared_out(process: int) -> float:
    """The proportional share of a process in MB; 0 where the system does not tell."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text("ascii")
    except OSError:
        return 0.0
    lines = (line.split() for line in text.splitlines())
    return next((int(words[1]) / _KILOBYTES for words in lines if words[0] == "Pss:"), 0.0)


def _ticked(process: int) -> float:
    """The processor time of a process, to the hundredth of a second; 0 if it is not told."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("ascii", errors="replace")
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _seconds(text: str) -> float:
    """Read the processor time of ``ps``: days, hours, minutes, seconds.

    >>> _seconds("1-02:03:04"), _seconds("2:03.50")
    (93784.0, 123.5)
    """
    days, _, rest = text.rpartition("-")
    total = 0.0
    for part in rest.split(":"):
        total = total * 60 + float(part)
    return total + 86400 * int(days or 0)


@dataclass
class Samples:
    """What was measured over time."""

    #: When, as `time.time` counts, sample by sample.
    times: list[float] = field(default_factory=list)
    #: Memory in MB by kind, sample by sample.
    mb: dict[str, list[float]] = field(default_factory=lambda: {DRIVER: [], JVM: [], WORKERS: []})

    def take(self) -> None:
        """Measure now."""
        self.times.append(time.time())
        for kind, usage in usage_of(os.getpid()).items():
            self.mb[kind].append(usage.mb)

    def between(self, begin: float, end: float, kind: str) -> list[float]:
        """Return the memory of a kind of process in a part of the time."""
        pairs = zip(self.times, self.mb[kind], strict=True)
        return [mb for at, mb in pairs if begin <= at <= end]


@contextmanager
def sampled(seconds: float = 1.0) -> Iterator[Samples]:
    """Measure this program's memory again and again while the block runs."""
    samples, over = Samples(), threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            samples.take()

    thread = threading.Thread(target=run, name="memory", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
