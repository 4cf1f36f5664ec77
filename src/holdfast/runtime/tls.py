"""Encrypts connections between processes of a job, with one certificate that only they have.

Both sides show it and trust no other one, so whoever can speak at all belongs to the job. The
handshake of `holdfast.runtime.handshake` follows within, as without encryption.

One thread may send while another one receives, which OpenSSL does not allow for one connection. So
OpenSSL works in memory here, under a lock, and the socket is used outside of it.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from holdfast.common.private import user_directory
from holdfast.runtime.handshake import fail, left

__all__ = ["Encrypted", "encrypt"]

#: bytes that are read from the socket at once
_READ: Final = 1 << 18
#: bytes that are encrypted at once
_WRITE: Final = 1 << 20


@lru_cache(maxsize=4)
def _context(certificate: bytes, server: bool) -> ssl.SSLContext:
    """Return what shows and trusts a certificate; it is in PEM, and its private key with it."""
    protocol = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # the certificate is nobody's but the job's, wherever its processes are
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate.decode())
    with TemporaryDirectory(dir=user_directory()) as directory:
        path = Path(directory, "certificate.pem")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(certificate)
        context.load_cert_chain(path)
    return context


def encrypt(
    connection: socket.socket, certificate: bytes, server: bool, deadline: float
) -> Encrypted:
    """Agree on keys with the other side of a connection.

    Raises:
        OSError: when it does not have the certificate, or the deadline passes.
        EOFError: when it hangs up.
    """
    encrypted = Encrypted(connection, _context(certificate, server), server)
    encrypted.agree(deadline)
    return encrypted


class Encrypted:
    """A connection that is used like a socket."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, server: bool) -> None:
        """Encrypt what goes over a connection from now on."""
        self.family = connection.family
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        #: held while OpenSSL works
        self._lock = threading.Lock()
        #: held while something is sent, so that it is sent in the order it was encrypted in
        self._sending = threading.Lock()

    def agree(self, deadline: float) -> None:
        """Exchange certificates and keys."""
        while True:
            self._socket.settimeout(left(deadline))
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_pending()
                self._incoming.write(self._socket.recv(_READ) or fail())
                continue
            self._send_pending()
            return

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it."""
        whole = memoryview(data).cast("B")
        for start in range(0, len(whole), _WRITE):
            with self._sending:
                with self._lock:
                    self._tls.write(whole[start : start + _WRITE])
                    encrypted = self._outgoing.read()
                self._socket.sendall(encrypted)

    def recv_into(self, buffer: memoryview) -> int:
        """Receive something, as much as fits; 0 if the other side has hung up."""
        while True:
            with self._lock:
                try:
                    return self._tls.read(len(buffer), buffer)  # type: ignore[return-value]
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return 0
            data = self._socket.recv(_READ)
            if not data:
                return 0
            with self._lock:
                self._incoming.write(data)
            self._send_pending()

    def recv(self, size: int) -> bytes:
        """Receive something, at most so many bytes."""
        buffer = memoryview(bytearray(size))
        return bytes(buffer[: self.recv_into(buffer)])

    def settimeout(self, seconds: float | None) -> None:
        """Limit how long anything may take."""
        self._socket.settimeout(seconds)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the socket."""
        self._socket.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """End it, also for threads that wait at it."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Let go of it."""
        self._socket.close()

    def _send_pending(self) -> None:
        """Send what OpenSSL itself has to say."""
        if self._outgoing.pending:
            with self._sending:
                with self._lock:
                    encrypted = self._outgoing.read()
                self._socket.sendall(encrypted)
