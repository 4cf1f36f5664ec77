"""How much memory a program and its workers hold, by ``ps``, which Linux and macOS both have."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

__all__ = ["Memory", "memory_now", "memory_of", "summed"]


@dataclass(frozen=True)
class Memory:
    """Resident memory in MB.

    ``driver`` is the process and the JVM, ``workers`` all other Python processes below them.
    Memory that forked workers share is counted for each. Other processes do not count: for a
    moment, a command that the JVM starts has the name of a thread and all memory of the JVM.
    """

    driver: float
    workers: float


def memory_now() -> Memory:
    """Measure this process and those below it."""
    return memory_of(os.getpid())


def memory_of(process: int) -> Memory:
    """Measure a process and those below it."""
    command = ["ps", "-axo", "pid=,ppid=,rss=,comm="]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return summed(done.stdout, process)


def summed(listing: str, root: int) -> Memory:
    r"""Add up a listing of process id, parent, kilobytes and command.

    >>> summed("10 1 2048 python\n11 10 4096 java\n12 11 1024 python\n13 1 9 x", 10)
    Memory(driver=6.0, workers=1.0)
    """
    children: dict[int, list[int]] = {}
    size: dict[int, float] = {}
    driver = {root}
    workers = set()
    for line in listing.splitlines():
        pid, parent, kilobytes, command = line.split(None, 3)
        children.setdefault(int(parent), []).append(int(pid))
        size[int(pid)] = int(kilobytes) / 1024
        name = os.path.basename(command.strip()).lower()
        if name == "java":
            driver.add(int(pid))
        elif name.startswith("python"):
            workers.add(int(pid))
    below = [root]
    for each in below:
        below.extend(children.get(each, []))
    return Memory(
        driver=sum(size.get(each, 0.0) for each in below if each in driver),
        workers=sum(size.get(each, 0.0) for each in below if each in workers - driver),
    )
