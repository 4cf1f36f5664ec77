"""Encrypts connections between processes of a job, with one certificate that only they have.

Both sides present it and trust no other one, so a peer that can communicate at all belongs to the
job. The handshake of `holdfast.runtime.network.handshake` follows over the encrypted connection.

One thread may send while another one receives, which OpenSSL does not allow for one connection. So
OpenSSL works on memory buffers here, under a lock, and the socket is used outside of the lock.
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
from holdfast.runtime.network.handshake import fail, left

#: number of bytes to read from the socket at once
_READ: Final = 1 << 18
#: number of bytes to encrypt at once
_WRITE: Final = 1 << 20


@lru_cache(maxsize=4)
def _context(certificate: bytes, server: bool) -> ssl.SSLContext:
    """Return a context for a certificate, which is in PEM and includes its private key."""
    protocol = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # the certificate belongs to the job, not to a host
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
    """Do the TLS handshake on a connection.

    Raises:
        OSError: when the other side does not have the certificate, or the deadline passes.
        EOFError: when it closes the connection.
    """
    encrypted = Encrypted(connection, _context(certificate, server), server)
    encrypted.agree(deadline)
    return encrypted


class Encrypted:
    """An encrypted connection that is used like a socket."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, server: bool) -> None:
        """Encrypt everything that is sent over a connection from now on."""
        self.family = connection.family
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        #: held while OpenSSL is called
        self._lock = threading.Lock()
        #: held while data is sent, so that it is sent in the order in which it was encrypted
        self._sending = threading.Lock()

    def agree(self, deadline: float) -> None:
        """Do the TLS handshake."""
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
        """Send all data."""
        whole = memoryview(data).cast("B")
        for start in range(0, len(whole), _WRITE):
            with self._sending:
                with self._lock:
                    self._tls.write(whole[start : start + _WRITE])
                    encrypted = self._outgoing.read()
                self._socket.sendall(encrypted)

    def recv_into(self, buffer: memoryview) -> int:
        """Receive data, as much as fits; return 0 if the other side has closed the connection."""
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
        """Receive data, at most this many bytes."""
        buffer = memoryview(bytearray(size))
        return bytes(buffer[: self.recv_into(buffer)])

    def settimeout(self, seconds: float | None) -> None:
        """Set the timeout of the socket."""
        self._socket.settimeout(seconds)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Set an option of the socket."""
        self._socket.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """Shut down the connection; this also wakes waiting threads."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send_pending(self) -> None:
        """Send the protocol messages of OpenSSL itself."""
        if self._outgoing.pending:
            with self._sending:
                with self._lock:
                    encrypted = self._outgoing.read()
                self._socket.sendall(encrypted)
