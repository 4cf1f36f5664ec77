"""Accepts connections of clients, up to a limit.

uvicorn accepts every connection, and counts afterwards: a thousand unknown clients would use up the
descriptors of the process, and asyncio would then log an error for each of them repeatedly. So
uvicorn does not listen on a socket, but gets connections that were counted.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import uvicorn

from holdfast.printable import get_logger
from holdfast.rest.access.connections import Connection, Connections
from holdfast.rest.access.limits import Limits
from holdfast.rest.access.lobby import Caller
from holdfast.rest.access.notices import Notice, described

#: pause when all connections are busy, in seconds
_BUSY: Final = 0.1
#: pause when ``accept()`` has failed, in seconds
_FAILED: Final = 1.0

_logger = get_logger(__name__)


class Server(uvicorn.Server):
    """uvicorn's server, with connections from an `Acceptor`."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, limits: Limits) -> None:
        """Accept connections on a listening socket."""
        super().__init__(config)
        self._connections = Connections(limits)
        self._acceptor = Acceptor(self, listener, self._connections)
        self._failed = Notice(_logger, "the REST server failed to serve a connection: %s")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting connections."""
        await super().startup(sockets=[])
        asyncio.get_running_loop().set_exception_handler(self._on_error)
        self._acceptor.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and wait a while for responses that are being sent."""
        self._acceptor.close()
        await super().shutdown(sockets=[])
        self._connections.drop_all()
        await asyncio.sleep(0)  # the sockets are closed in the next iteration of the loop

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self._failed(context["message"] if error is None else described(error), error=error)


class Acceptor:
    """Accepts one connection per iteration of the loop, so that requests are read in between."""

    def __init__(
        self, server: uvicorn.Server, listener: socket.socket, connections: Connections
    ) -> None:
        """Prepare; nothing is accepted before `start`."""
        self._server = server
        self._listener = listener
        self._connections = connections
        self._tasks: set[asyncio.Task[None]] = set()
        self._resumption: asyncio.TimerHandle | None = None
        self._full = Notice(
            _logger,
            "the REST server has %s connections, which is the limit; those that wait for their "
            "clients are closed to make room for new ones",
        )
        self._no_resources = Notice(
            _logger,
            "the REST server cannot accept a connection: %s; it tries again every second",
        )

    def start(self) -> None:
        """Accept connections from now on."""
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Stop accepting connections."""
        if self._resumption is not None:
            self._resumption.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _resume(self) -> None:
        self._resumption = None
        self._loop.add_reader(self._listener, self._accept)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._resumption = self._loop.call_later(seconds, self._resume)

    def _accept(self) -> None:
        if self._connections.are_full:
            self._full(self._connections.limits.connections)
            # NB: the connection is closed in the next iteration, which then has room
            if not self._connections.make_room():
                self._pause(_BUSY)
            return
        try:
            line, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptors or no memory are left
            self._no_resources(error)
            self._connections.drop_waiting()
            self._pause(_FAILED)
            return
        line.setblocking(False)
        Caller(line, self._connections, self._serve)

    def _serve(self, line: socket.socket, data: bytes) -> None:
        config, state = self._server.config, self._server.server_state
        connection = Connection(config, state, self._connections, data)
        task = self._loop.create_task(self._connect(connection, line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: Connection, line: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, line)
        except OSError:  # the client has disconnected
            connection.drop()
            line.close()
