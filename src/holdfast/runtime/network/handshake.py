"""The handshake in which two processes prove to each other that they have the same key.

    client                                      server
      nonce                               ──►
                                          ◄──     nonce
      HMAC(key, "client", both nonces)    ──►
                                          ◄──     HMAC(key, "server", both nonces)

All messages have fixed lengths, and nothing else is read before the end: an attacker cannot cause
anything to be unpickled or allocated. Nonces are new for each connection, so replaying messages
does not work. The proofs of the two sides differ, so reflecting a proof does not work either. What
follows is neither encrypted nor signed, unless the whole connection is encrypted
(`holdfast.runtime.network.tls`).
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import Final, NoReturn, Protocol

from holdfast.errors import HoldfastError

_NONCE: Final = 32
_PROOF: Final = 32


class SocketLike(Protocol):
    """The methods that are needed of a socket, encrypted or not."""

    def settimeout(self, seconds: float | None, /) -> None: ...

    def sendall(self, data: bytes, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...


class PeerError(HoldfastError):
    """A process could not be reached, or could not prove that it has the key."""


def introduce(connection: SocketLike, key: bytes, deadline: float) -> None:
    """Prove to a server that this client has the key; return when it has proved the same.

    Raises:
        PeerError: when the server does not have the key.
        EOFError, OSError: when it closes the connection, or the deadline passes.
    """
    nonce = secrets.token_bytes(_NONCE)
    connection.settimeout(left(deadline))
    connection.sendall(nonce)
    nonces = nonce + _read(connection, _NONCE, deadline)
    connection.sendall(_proof(key, b"client", nonces))
    _check(_read(connection, _PROOF, deadline), _proof(key, b"server", nonces))


def admit(connection: SocketLike, key: bytes, deadline: float) -> bytes:
    """Let a client prove that it has the key; raise errors as `introduce` does.

    Returns:
        The server's proof, which admits the client and is not sent yet.
    """
    theirs = _read(connection, _NONCE, deadline)
    nonce = secrets.token_bytes(_NONCE)
    connection.sendall(nonce)
    nonces = theirs + nonce
    _check(_read(connection, _PROOF, deadline), _proof(key, b"client", nonces))
    return _proof(key, b"server", nonces)


def _proof(key: bytes, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(key, b"holdfast peers 1 " + side + nonces, "sha256")


def _check(found: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(found, expected):
        raise PeerError("the other side of a connection does not have the key")


def _read(connection: SocketLike, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        connection.settimeout(left(deadline))
        data += connection.recv(size - len(data)) or fail()
    return data


def left(deadline: float) -> float:
    """Return how many seconds are left; raise a TimeoutError if none are."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def fail() -> NoReturn:
    """Raise an EOFError because the other side has closed the connection."""
    raise EOFError
