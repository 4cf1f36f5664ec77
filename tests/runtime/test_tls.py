"""Connections that are encrypted with the job's own certificate."""

from __future__ import annotations

import datetime
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.handshake import PeerError
from holdfast.runtime.network.peers import Line, connect, listen

HOST = "127.0.0.1"
PATIENCE = 120.0


@cache
def certificate(name: str = "holdfast") -> bytes:
    """As `holdfast.spark.certificate` makes it, without a JVM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return made.public_bytes(serialization.Encoding.PEM) + private


@contextmanager
def listening(own: bytes) -> Iterator[tuple[Address, Future[Line]]]:
    came: Future[Line] = Future()
    over = threading.Event()

    def serve(line: Line) -> None:
        came.set_result(line)
        over.wait(PATIENCE)
        line.close()

    listener = listen(serve, HOST, certificate=own)
    try:
        yield listener.address, came
    finally:
        over.set()
        listener.close()


def test_both_sides_send_and_receive_at_once() -> None:
    """As two slots do: each has a thread that sends while another one receives."""
    sent = [secrets.token_bytes(size) for size in (1, 5_000_000, 0, 70_000)]
    with listening(certificate()) as (address, came):
        lines = connect(address, PATIENCE, certificate()), came.result(PATIENCE)

        def send(line: Line) -> None:
            for data in sent:
                line.send(b"head", data)

        threads = [threading.Thread(target=send, args=(line,)) for line in lines]
        for thread in threads:
            thread.start()
        for line in lines:
            assert [bytes(line.receive().data) for _ in sent] == sent
        for thread in threads:
            thread.join()
        lines[0].hang_up()
        with pytest.raises((EOFError, OSError)):
            lines[1].receive()
        lines[0].close()


@pytest.mark.parametrize("theirs", [b"", certificate("stranger")], ids=["none", "another"])
def test_who_does_not_have_the_certificate_is_not_let_in(theirs: bytes) -> None:
    with listening(certificate()) as (address, came), pytest.raises(PeerError):
        connect(address, 1.0, theirs)
    assert not came.done()


def test_who_has_the_certificate_needs_the_key_too() -> None:
    with listening(certificate()) as (address, came):
        other = Address(secrets.token_hex(32), host=address.host, port=address.port)
        with pytest.raises(PeerError):
            connect(other, 1.0, certificate())
        assert not came.done()


def test_nothing_can_be_read_on_the_way() -> None:
    secret = b"nobody else may read this" * 100
    seen = bytearray()
    with listening(certificate()) as (address, came), socket.create_server((HOST, 0)) as middle:
        port = middle.getsockname()[1]
        threading.Thread(target=_forward, args=(middle, address, seen), daemon=True).start()
        through = Address(address.key, host=HOST, port=port)
        with closing(connect(through, PATIENCE, certificate())) as line:
            line.send(b"head", secret)
            assert bytes(came.result(PATIENCE).receive().data) == secret
    assert len(seen) > len(secret)
    assert secret[:16] not in bytes(seen)


def _forward(middle: socket.socket, address: Address, seen: bytearray) -> None:
    near, _ = middle.accept()
    far = socket.create_connection((address.host, address.port))

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                seen.extend(data)
                target.sendall(data)

    back = threading.Thread(target=copy, args=(far, near), daemon=True)
    back.start()
    copy(near, far)
    far.close()
    back.join()
    near.close()


def test_a_peer_that_says_nothing_holds_nobody_up() -> None:
    with listening(certificate()) as (address, came):
        with socket.create_connection((address.host, address.port)):
            began = time.monotonic()
            line = connect(address, PATIENCE, certificate())
            assert time.monotonic() - began < PATIENCE / 2
        with closing(line):
            line.send(b"here")
            assert bytes(came.result(PATIENCE).receive().head) == b"here"
