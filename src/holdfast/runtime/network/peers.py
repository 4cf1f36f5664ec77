"""Connections between processes of one job, which exchange objects and data in both directions.

Anyone who can reach the socket can connect, so both sides first prove that they have the key, which
they know from a file that only this user can read (`addresses`, `handshake`). A peer that has not
done so within the deadline is dropped. If too many peers are unproven, the one that has waited
longest is dropped. None of them prevents others from connecting, and nothing they send is
unpickled.

A message is ``head size (4 bytes) | data size (8 bytes) | head | data``.
"""

from __future__ import annotations

import pickle
import secrets
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final, NamedTuple

from holdfast.common.leftovers import OwnDirectory
from holdfast.common.options.ports import ANY_PORT, Ports
from holdfast.printable import get_logger
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.handshake import PeerError, admit, fail, introduce, left
from holdfast.runtime.network.sockets import listen_at, listen_here, socket_path
from holdfast.runtime.network.tls import Encrypted, encrypt

#: the errors of a connection that the other side has closed
GONE: Final = (EOFError, OSError)

#: how long a peer has to prove that it has the key, in seconds
_DEADLINE: Final = 10.0
#: how many unproven peers there may be at a time
_STRANGERS: Final = 64
#: pause after a failed `accept()` or `connect()`, in seconds
_PAUSE: Final = 0.05

_SIZES: Final = struct.Struct("<IQ")
#: the largest head of a message, in bytes
_LARGEST_HEAD: Final = 1 << 20
#: data below this size is sent together with the head, in bytes
_SMALL: Final = 1 << 14
#: how many bytes are allocated before any of them has arrived
_STEP: Final = 1 << 26

_logger = get_logger(__name__)


class Message(NamedTuple):
    """A message: a head and data."""

    head: memoryview
    data: memoryview


class Line:
    """A connection between two processes that have proved that they have the same key.

    One thread may send while another one receives.
    """

    def __init__(self, connection: socket.socket | Encrypted) -> None:
        """Take over a connection."""
        connection.settimeout(None)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection

    def say(self, message: Any) -> None:
        """Send an object."""
        self.send(data=pickle.dumps(message, 5))

    def hear(self, patience: float | None = None) -> Any:
        """Return the next object.

        Raises:
            TimeoutError: when it does not arrive within ``patience`` seconds.
        """
        if patience is not None:
            self._socket.settimeout(patience)
        data = self.receive().data
        if patience is not None:
            self._socket.settimeout(None)
        return pickle.loads(data)

    def send(self, head: bytes = b"", data: bytes | memoryview = b"") -> None:
        """Send a message."""
        sizes = _SIZES.pack(len(head), len(data))
        if len(data) < _SMALL:
            self._socket.sendall(b"".join((sizes, head, data)))
        else:
            self._socket.sendall(sizes + head)
            self._socket.sendall(data)

    def receive(self) -> Message:
        """Return the next message.

        Raises:
            EOFError, OSError: when there is none because the other side has closed the connection.
        """
        head_size, data_size = _SIZES.unpack(self._take(_SIZES.size))
        if head_size > _LARGEST_HEAD:
            raise ConnectionError(f"a message has a head of {head_size} bytes")
        return Message(self._take(head_size), self._take(data_size))

    def limit_silence(self, seconds: float) -> None:
        """Raise a TimeoutError in threads that wait for the other side longer than this."""
        self._socket.settimeout(seconds)

    def limit_waiting(self, seconds: float) -> None:
        """Raise an OSError in threads that receive nothing for this long.

        Unlike `limit_silence`, a message may take any time to send: the other side may be busy.
        """
        whole, part = divmod(seconds, 1)
        limit = struct.pack("@ll", int(whole), int(part * 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def wait(self) -> None:
        """Wait until the other side closes the connection; discard what it still sends."""
        while self._socket.recv(1 << 16):
            pass

    def hang_up(self) -> None:
        """Shut down the connection; unlike `close`, this also wakes waiting threads."""
        _hang_up(self._socket)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _take(self, size: int) -> memoryview:
        """Return this many bytes; memory is allocated as they arrive."""
        data, filled = bytearray(min(size, _STEP)), 0
        while filled < size:
            if filled == len(data):
                data.extend(bytes(min(size - filled, filled)))
            with memoryview(data) as whole, whole[filled:] as rest:
                filled += self._socket.recv_into(rest) or fail()
        return memoryview(data)


class Listener:
    """A thread that accepts peers that have the key, and serves each in a thread of its own.

    Attributes:
        address: where peers connect.
    """

    def __init__(
        self,
        listener: socket.socket,
        address: Address,
        serve: Callable[[Line], None],
        directory: OwnDirectory | None,
        certificate: bytes = b"",
    ) -> None:
        """Start to accept connections; ``directory`` is that of a Unix socket."""
        self._certificate = certificate
        self.address = address
        self._socket, self._directory = listener, directory
        self._serve = serve
        self._key = bytes.fromhex(address.key)
        self._closed = self._told = False
        self._lock = threading.Lock()
        #: peers that have not proved that they have the key, in the order of their arrival
        self._strangers: deque[socket.socket] = deque()
        threading.Thread(target=self._accept, name="peers-of-this-process", daemon=True).start()

    def close(self) -> None:
        """Accept no more connections; open ones stay open."""
        self._closed = True
        _hang_up(self._socket)
        self._socket.close()
        if self._directory is not None:
            self._directory.remove()

    def _accept(self) -> None:
        """Accept peers; nothing that they do blocks or ends this thread."""
        while not self._closed:
            try:
                stranger, _ = self._socket.accept()
                self._meet(stranger)
            except (OSError, RuntimeError) as error:  # no file descriptor or no thread is left
                self._pause(error)

    def _meet(self, stranger: socket.socket) -> None:
        with self._lock:
            self._strangers.append(stranger)
            if len(self._strangers) > _STRANGERS:
                _hang_up(self._strangers.popleft())
        try:
            threading.Thread(target=self._greet, args=(stranger,), daemon=True).start()
        except RuntimeError:
            self._forget(stranger)
            stranger.close()
            raise

    def _greet(self, stranger: socket.socket) -> None:
        with closing(stranger), suppress(*GONE, PeerError):
            try:
                deadline = time.monotonic() + _DEADLINE
                stranger.settimeout(_DEADLINE)
                peer = _secured(stranger, self._certificate, True, deadline)
                proof = admit(peer, self._key, deadline)
            finally:
                known = self._forget(stranger)
            if known:
                peer.sendall(proof)
                self._serve(Line(peer))

    def _forget(self, stranger: socket.socket) -> bool:
        """Remove an unproven peer; return whether it had not been dropped."""
        with self._lock:
            known = stranger in self._strangers
            if known:
                self._strangers.remove(stranger)
            return known

    def _pause(self, error: Exception) -> None:
        if self._closed:
            return
        if not self._told:
            self._told = True
            message = "cannot accept connections at %s, will try again (logged once): %s"
            _logger.warning(message, self.address, error)
        time.sleep(_PAUSE)


def listen(
    serve: Callable[[Line], None],
    host: str = "",
    key: str = "",
    certificate: bytes = b"",
    ports: Ports = ANY_PORT,
) -> Listener:
    """Accept connections of other processes of the job.

    Args:
        serve: called with each connection, in a thread of its own; it is closed afterwards.
        host: the IP address to listen on; empty for a Unix socket.
        key: the key that peers must have, in hexadecimal digits; a new one by default.
        certificate: encrypts the connections, if it is not empty.
        ports: the first free one of these is used.

    Raises:
        CannotListenError: when no port is free, or the address does not belong to this host.
    """
    if host:
        return listen_on(listen_at(host, ports), serve, key, certificate)
    listener, directory = listen_here()
    address = Address(key or secrets.token_hex(32), socket=directory.path.name)
    return Listener(listener, address, serve, directory)


def listen_on(
    listener: socket.socket,
    serve: Callable[[Line], None],
    key: str = "",
    certificate: bytes = b"",
) -> Listener:
    """Accept connections on a socket that listens on an IP address; see `listen`."""
    host, port = listener.getsockname()[:2]
    address = Address(key or secrets.token_hex(32), host=host, port=port)
    return Listener(listener, address, serve, None, certificate)


def connect(address: Address, patience: float, certificate: bytes = b"") -> Line:
    """Connect to a process of the job; with a certificate if it listens with that one.

    Raises:
        PeerError: when no process listens there, or it does not prove within ``patience`` seconds
            that it has the key.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return _connect(address, deadline, certificate)
        except _BUSY as error:
            if time.monotonic() + _PAUSE > deadline:
                raise PeerError(
                    f"no process answers at {address}: it closed the connection"
                ) from error
            time.sleep(_PAUSE)
        except TimeoutError as error:
            message = f"no process answers at {address} within {patience:g} seconds"
            raise PeerError(message) from error
        except OSError as error:
            problem = error.strerror or error
            raise PeerError(f"no process can be reached at {address}: {problem}") from error


#: the other side is overloaded: it drops unproven peers, or its backlog is full
_BUSY: Final = (EOFError, ConnectionResetError, BrokenPipeError, BlockingIOError)


def _connect(address: Address, deadline: float, certificate: bytes) -> Line:
    connection = _open(address, deadline)
    try:
        secured = _secured(connection, certificate, False, deadline)
        introduce(secured, bytes.fromhex(address.key), deadline)
    except BaseException:
        connection.close()
        raise
    return Line(secured)


def _secured(
    connection: socket.socket, certificate: bytes, server: bool, deadline: float
) -> socket.socket | Encrypted:
    return encrypt(connection, certificate, server, deadline) if certificate else connection


def _open(address: Address, deadline: float) -> socket.socket:
    if not address.socket:
        return socket.create_connection((address.host, address.port), left(deadline))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(left(deadline))
        connection.connect(str(socket_path(address.socket)))
    except BaseException:
        connection.close()
        raise
    return connection


def _hang_up(connection: socket.socket | Encrypted) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
