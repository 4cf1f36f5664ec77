"""A thread in a worker that cuts one of its connections when it is told to.

A process announces itself by a file ``agents/<pid>`` in the directory of the run. Whoever wants a
connection cut puts a number into ``agents/<pid>.cut``; when it is done, that file is gone.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

#: interval of looking for an order, in seconds
_LOOK: Final = 0.02
_lock = threading.Lock()
_running: set[tuple[int, str]] = set()


def ensure_agent(run: str) -> None:
    """Start the agent of this process, unless it runs or the directory of the run is not here."""
    # NB: the process id, because workers are forks
    known = (os.getpid(), run)
    with _lock:
        if known in _running or not os.path.isdir(run):
            return
        _running.add(known)
    threading.Thread(target=_watch, args=(Path(run),), name="holdfast-agent", daemon=True).start()


def _watch(run: Path) -> None:
    order = run / "agents" / f"{os.getpid()}.cut"
    with suppress(OSError):
        order.with_suffix("").touch()
    while run.is_dir():
        with suppress(OSError, ValueError):
            number = int(order.read_text())
            cut_connection(number)
            order.unlink()
        time.sleep(_LOOK)


def cut_connection(number: int) -> bool:
    """Shut down one of the connections of this process, chosen by a number; False without any."""
    found = sorted(_connections())
    if not found:
        return False
    chosen = found[number % len(found)]
    with socket.socket(fileno=os.dup(chosen)) as line, suppress(OSError):
        # NB: it ends the connection for all copies of the descriptor
        line.shutdown(socket.SHUT_RDWR)
    return True


def _connections() -> list[int]:
    """Return the descriptors of connections to other processes."""
    return [number for name in os.listdir("/dev/fd") if _connects(number := int(name))]


def _connects(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as line:
            # NB: a pair of sockets within this process, as event loops have it, has no names
            return bool(line.getpeername() or line.getsockname())
    except OSError:  # it listens, or is closed meanwhile
        return False
