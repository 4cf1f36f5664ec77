"""The connections that are served: how many there are, and how long each may wait for its client.

A connection comes from the `lobby` with the header of its first request. It waits for its client
until a whole request has come, and while the client does not read what it was sent. Both have a
deadline: half a request, or an answer that nobody reads, costs the client its connection. There is
no deadline while the application makes an answer, or has nothing to send on an event stream.

When there are as many connections as there may be, a new one takes the place of the one that has
waited longest in the lobby. If nobody is there, one that is served goes; first those that have sent
no request with a right to be answered, so that strangers cost nobody else a connection.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Final

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from holdfast.rest.limits import Limits

__all__ = ["Connection", "Connections"]

_REQUEST: Final = "the request"
_READING: Final = "the client to read"


class Connections:
    """All connections of a server."""

    def __init__(self, limits: Limits) -> None:
        """Start with no connections."""
        self.limits = limits
        self._all: set[Connection] = set()
        #: those that wait for their clients, the one that has waited longest first
        self._waiting: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> None:
        """Count a connection."""
        self._all.add(connection)

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        self._all.discard(connection)
        self.stop_waiting(connection)

    def start_waiting(self, connection: Connection) -> None:
        """A connection waits for its client from now on."""
        self._waiting[connection] = None

    def stop_waiting(self, connection: Connection) -> None:
        """A connection does not wait for its client any longer."""
        self._waiting.pop(connection, None)

    def make_room(self) -> bool:
        """Close the connection that has waited longest for its client; False if none waits."""
        strangers = (connection for connection in self._waiting if not connection.is_known)
        for connection in chain(strangers, self._waiting):
            connection.drop()
            return True
        return False

    def drop_waiting(self) -> None:
        """Close all connections that wait for their clients."""
        for connection in list(self._waiting):
            connection.drop()

    def drop_all(self) -> None:
        """Close all connections."""
        for connection in list(self._all):
            connection.drop()


class Connection(H11Protocol):
    """A connection that does not wait for its client for ever."""

    def __init__(
        self, config: Config, state: ServerState, connections: Connections, data: bytes
    ) -> None:
        """Count as one of these connections from now on; ``data`` has come already."""
        super().__init__(config, state, {})
        self._table = connections
        self._data = data
        self._awaited: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        connections.add(self)

    @property
    def is_known(self) -> bool:
        """Whether the client has sent a request with a right to be answered."""
        if self.scope is None:  # before the first request, whatever uvicorn's types say
            return False
        rights = self.scope["state"].get("rights")
        return rights is not None and rights.read

    def drop(self) -> None:
        """Close the connection at once, with whatever was not sent yet."""
        self._table.remove(self)
        self._cancel_deadline()
        if self.transport is not None:
            self.transport.abort()

    # What asyncio and uvicorn call: each call may change what the connection waits for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """There is a client."""
        super().connection_made(transport)
        self._settle()
        self.data_received(self._data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        super().connection_lost(exc)
        self._table.remove(self)
        self._cancel_deadline()

    def data_received(self, data: bytes) -> None:
        """The client has sent something."""
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        """The application has sent an answer."""
        super().on_response_complete()
        self._settle()

    def pause_writing(self) -> None:
        """The client does not read what it was sent."""
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._settle()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; once an answer has begun, it cannot be refused any more."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.drop()

    def shutdown(self) -> None:
        """The server ends: an answer that is being made or sent may still be."""
        if self._awaited == _REQUEST and not self.transport.get_write_buffer_size():
            self.drop()
        elif self.cycle is not None:
            self.cycle.keep_alive = False

    def _settle(self) -> None:
        awaited = self._what_is_awaited()
        if awaited == self._awaited:  # NB: a part of a request does not prolong the deadline
            return
        self._awaited = awaited
        self._table.stop_waiting(self)
        self._cancel_deadline()
        if awaited is not None:
            seconds = self._table.limits.seconds
            self._deadline = self.loop.call_later(seconds, self.drop)
            self._table.start_waiting(self)

    def _what_is_awaited(self) -> str | None:
        if self.flow.write_paused:
            return _READING
        if self.cycle is None:
            return _REQUEST
        return _REQUEST if self.cycle.response_complete or self.cycle.more_body else None

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
