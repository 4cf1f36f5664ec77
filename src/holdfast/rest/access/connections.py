"""The connections of a server: their number is limited, and so is the wait for each client.

A connection waits for its client until a complete request has arrived, and while the client does
not read the response. Both have a deadline: an incomplete request, or a response that is not read,
closes the connection. There is no deadline while the application prepares a response, or has
nothing to send on an event stream.

When the limit of connections is reached, a new one replaces the one that has waited longest.
Connections without an authorized request are closed first, so that unknown clients cannot displace
authorized ones.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Final, Protocol

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from holdfast.rest.access.limits import Limits

_REQUEST: Final = "the request"
_READING: Final = "the client to read"


class Member(Protocol):
    """A connection, whether it is already served or not."""

    @property
    def is_known(self) -> bool:
        """Return whether the client has sent an authorized request."""

    def drop(self) -> None:
        """Close the connection immediately, and discard unsent data."""


class Connections:
    """All connections of a server."""

    def __init__(self, limits: Limits) -> None:
        """Start with no connections."""
        self.limits = limits
        self._all: set[Member] = set()
        #: the deadlines of connections that wait for their clients, the earliest first
        self._waiting: dict[Member, float] = {}
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def are_full(self) -> bool:
        """Return whether the limit is reached."""
        return len(self._all) >= self.limits.connections

    def add(self, member: Member) -> None:
        """Count a connection."""
        self._all.add(member)

    def remove(self, member: Member) -> None:
        """Remove a connection."""
        self._all.discard(member)
        self.stop_waiting(member)

    def start_waiting(self, member: Member) -> None:
        """Record that a connection waits for its client; it is dropped at its deadline."""
        if member not in self._all:  # NB: the response of a dropped connection ends later
            return
        loop = asyncio.get_running_loop()
        self._waiting[member] = deadline = loop.time() + self.limits.seconds
        if self._expiry is None:
            self._expiry = loop.call_at(deadline, self._expire)

    def stop_waiting(self, member: Member) -> None:
        """Record that a connection does not wait for its client any longer."""
        self._waiting.pop(member, None)

    def make_room(self) -> bool:
        """Close the connection that has waited longest for its client; False if none waits."""
        strangers = (member for member in self._waiting if not member.is_known)
        for member in chain(strangers, self._waiting):
            member.drop()
            return True
        return False

    def drop_waiting(self) -> None:
        """Close all connections that wait for their clients."""
        for member in list(self._waiting):
            member.drop()

    def drop_all(self) -> None:
        """Close all connections."""
        for member in list(self._all):
            member.drop()

    def _expire(self) -> None:
        """Drop connections whose deadline has passed, and schedule the next check."""
        self._expiry = None
        loop = asyncio.get_running_loop()
        for member, deadline in list(self._waiting.items()):
            if deadline > loop.time():
                self._expiry = loop.call_at(deadline, self._expire)
                return
            member.drop()


class Connection(H11Protocol):
    """A connection that is served, from the header of its first request on."""

    def __init__(
        self, config: Config, state: ServerState, connections: Connections, data: bytes
    ) -> None:
        """Add the connection to ``connections``; ``data`` was received already."""
        super().__init__(config, state, {})
        self._table = connections
        self._data = data
        self._awaited: str | None = None
        connections.add(self)

    @property
    def is_known(self) -> bool:
        """Return whether the client has sent an authorized request."""
        if self.scope is None:  # before the first request, whatever uvicorn's types say
            return False
        rights = self.scope["state"].get("rights")
        return rights is not None and rights.read

    def drop(self) -> None:
        """Close the connection immediately, and discard unsent data."""
        self._table.remove(self)
        if self.transport is not None:
            self.transport.abort()

    # Callbacks of asyncio and uvicorn: each may change what the connection waits for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Handle a new connection."""
        super().connection_made(transport)
        self.data_received(self._data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a closed connection."""
        super().connection_lost(exc)
        self._table.remove(self)

    def data_received(self, data: bytes) -> None:
        """Handle data from the client."""
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        """Handle the end of a response."""
        super().on_response_complete()
        self._settle()

    def pause_writing(self) -> None:
        """Handle a client that does not read the response."""
        super().pause_writing()
        self._settle()

    def resume_writing(self) -> None:
        """Handle a client that reads again."""
        super().resume_writing()
        self._settle()

    def send_400_response(self, message: str) -> None:
        """Reject a request that is not HTTP; if a response has started, close the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(message)
        else:
            self.drop()

    def shutdown(self) -> None:
        """Handle the end of the server; a response in progress may be completed."""
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
        if awaited is not None:
            self._table.start_waiting(self)

    def _what_is_awaited(self) -> str | None:
        if self.flow.write_paused:
            return _READING
        if self.cycle is None:
            return _REQUEST
        return _REQUEST if self.cycle.response_complete or self.cycle.more_body else None
