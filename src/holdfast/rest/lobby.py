"""Connections whose client has not sent the header of a request yet.

Strangers can open any number of them, so each costs as little as can be: a socket, and the bytes
that have come. What a connection needs to be served is made when the header is there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["Lobby"]

#: a header that is longer goes on as it is, and is refused
_LONGEST: Final = 16 * 1024
#: how a header ends; some clients send no carriage returns
_ENDS: Final = (b"\n\r\n", b"\n\n")


class _Caller(NamedTuple):
    deadline: float
    data: bytearray


class Lobby:
    """The connections that wait for a header, each for so many seconds at most."""

    def __init__(self, seconds: float, admit: Callable[[socket.socket, bytes], None]) -> None:
        """``admit`` is called with each connection that has its header, and what has come on it."""
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._admit = admit
        #: the one that has waited longest first
        self._callers: dict[socket.socket, _Caller] = {}
        self._expiry: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._callers)

    def add(self, line: socket.socket) -> None:
        """Let a connection wait for its header."""
        deadline = self._loop.time() + self._seconds
        self._callers[line] = _Caller(deadline, bytearray())
        self._loop.add_reader(line, self._read, line)
        if self._expiry is None:
            self._expiry = self._loop.call_at(deadline, self._expire)

    def make_room(self) -> bool:
        """Close the connection that has waited longest; False if there is none."""
        for line in self._callers:
            self._remove(line)
            line.close()
            return True
        return False

    def clear(self) -> None:
        """Close all connections."""
        while self.make_room():
            pass
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _remove(self, line: socket.socket) -> None:
        self._loop.remove_reader(line)
        del self._callers[line]

    def _read(self, line: socket.socket) -> None:
        try:
            more = line.recv(_LONGEST)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            more = b""
        data = self._callers[line].data
        begin = max(0, len(data) - 2)  # an end may have come in parts
        data += more
        if not more:
            self._remove(line)
            line.close()
        elif len(data) >= _LONGEST or any(data.find(end, begin) >= 0 for end in _ENDS):
            self._remove(line)
            self._admit(line, bytes(data))

    def _expire(self) -> None:
        """Close the connections whose time is over, and come again when that of the next one is."""
        self._expiry = None
        now = self._loop.time()
        while self._callers:
            oldest = next(iter(self._callers.values()))
            if oldest.deadline > now:
                self._expiry = self._loop.call_at(oldest.deadline, self._expire)
                return
            self.make_room()
