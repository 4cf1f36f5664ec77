"""Connections whose client has not sent the header of a request yet.

Unknown clients can open any number of them, so each needs as little as possible: a socket, and the
bytes received. Everything else is created when the header is complete.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from holdfast.rest.access.connections import Connections

#: a longer header is passed on incomplete, and rejected
_LONGEST: Final = 16 * 1024
#: the end of a header; some clients send no carriage returns
_ENDS: Final = (b"\n\r\n", b"\n\n")


class Caller:
    """A connection that waits for a header."""

    is_known = False

    def __init__(
        self,
        line: socket.socket,
        connections: Connections,
        admit: Callable[[socket.socket, bytes], None],
    ) -> None:
        """Wait for the header, and then call ``admit`` with all bytes received."""
        self._line = line
        self._connections = connections
        self._admit = admit
        self._data = bytearray()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(line, self._read)
        connections.add(self)
        connections.start_waiting(self)

    def drop(self) -> None:
        """Close the connection immediately."""
        self._leave()
        self._line.close()

    def _leave(self) -> None:
        self._connections.remove(self)
        self._loop.remove_reader(self._line)

    def _read(self) -> None:
        try:
            more = self._line.recv(_LONGEST)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            more = b""
        if not more:  # the client has disconnected
            self.drop()
            return
        begin = max(0, len(self._data) - 2)  # the end may arrive in parts
        self._data += more
        has_end = any(self._data.find(end, begin) >= 0 for end in _ENDS)
        if has_end or len(self._data) >= _LONGEST:
            self._leave()
            self._admit(self._line, bytes(self._data))
