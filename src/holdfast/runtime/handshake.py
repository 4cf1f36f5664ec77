"""How two processes prove to each other that they have the same key, over a connection of theirs.

    client                                      server
      nonce                               ──►
                                          ◄──     nonce
      HMAC(key, "client", both nonces)    ──►
                                          ◄──     HMAC(key, "server", both nonces)

All messages have fixed lengths, and nothing else is read before the end: a stranger can make nobody
unpickle or allocate anything. Nonces are new for each connection, so it is of no use to send again
what was heard before. The two sides prove with different words, so it is of no use to send a proof
back. What follows is neither encrypted nor signed, unless the connection is encrypted as a whole
(`holdfast.runtime.tls`).
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import Final, NoReturn, Protocol

from holdfast.errors import HoldfastError

__all__ = ["PeerError", "admit", "fail", "introduce", "left"]

_NONCE: Final = 32
_PROOF: Final = 32


class Connection(Protocol):
    """What is needed of a socket, or of one that encrypts."""

    def settimeout(self, seconds: float | None, /) -> None: ...

    def sendall(self, data: bytes, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...


class PeerError(HoldfastError):
    """A process could not be reached, or could not prove that it has the key."""


def introduce(connection: Connection, key: bytes, deadline: float) -> None:
    """Prove to a server that this client has the key; returns when it has proved the same.

    Raises:
        PeerError: when the server does not have the key.
        EOFError, OSError: when it hangs up, or the deadline passes.
    """
    nonce = secrets.token_bytes(_NONCE)
    connection.settimeout(left(deadline))
    connection.sendall(nonce)
    nonces = nonce + _read(connection, _NONCE, deadline)
    connection.sendall(_proof(key, b"client", nonces))
    _check(_read(connection, _PROOF, deadline), _proof(key, b"server", nonces))


def admit(connection: Connection, key: bytes, deadline: float) -> bytes:
    """Let a client prove that it has the key; raises as `introduce`.

    Returns:
        The proof that lets it in, which is not sent yet.
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


def _read(connection: Connection, size: int, deadline: float) -> bytes:
    data = b""
    while len(data) < size:
        connection.settimeout(left(deadline))
        data += connection.recv(size - len(data)) or fail()
    return data


def left(deadline: float) -> float:
    """Return how many seconds are left; raises TimeoutError if none are."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def fail() -> NoReturn:
    """Say that the other side has gone."""
    raise EOFError
