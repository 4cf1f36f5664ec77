"""Peers that have no business at a socket of a job, or do not behave at one."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast.driver.epoch_book import EpochBook
from holdfast.driver.slots.attempt_slots import Slots
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.desk import Desk
from holdfast.runtime.network.sockets import socket_path
from tests.another_user import NOBODY

#: longer than any test may take, so that it is never what decides one
PATIENCE = 60.0


def remembered(monkeypatch: pytest.MonkeyPatch, place: str, kind: type[Any]) -> list[Any]:
    """The objects of a class that the driver makes from now on."""
    made: list[Any] = []

    class Known(kind):  # type: ignore[misc]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(place, Known)
    return made


class Sockets:
    """Where the processes of a job listen, as the driver knows it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slots = remembered(monkeypatch, "holdfast.spark.resident.engine.Slots", Slots)
        self._desks = remembered(monkeypatch, "holdfast.spark.engine_base.Desk", Desk)
        self._books = remembered(monkeypatch, "holdfast.driver.epochs.running.EpochBook", EpochBook)

    def addresses(self) -> set[Address]:
        """The driver, the slots, the workers in which subtasks live, the source."""
        found = {each.address.without_key() for each in (*self.slots, *self._desks)}
        hellos = [slot.hello for attempt in self.slots for slot in attempt._slots.values()]
        found |= {Address(host=hello.host, port=hello.port) for hello in hellos}
        found |= {state.address for desk in self._desks for state in desk._sources.values()}
        homes = [home for book in self._books for level in book.homes for home in level]
        found |= {home.address for home in homes if home is not None}
        return found | {home.far for home in homes if home is not None and home.far is not None}


def knock(address: Address) -> socket.socket:
    """Connect, and say nothing."""
    if address.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            # NB: blocks while the backlog is full, which a timeout would turn into an error
            connection.connect(str(socket_path(address.socket)))
        except BaseException:
            connection.close()
            raise
    else:
        connection = socket.create_connection((address.host, address.port))
    connection.settimeout(PATIENCE)
    return connection


def silent(connection: socket.socket) -> None:
    """Stay."""


def closing(connection: socket.socket) -> None:
    """Go at once."""
    connection.close()


def resetting(connection: socket.socket) -> None:
    """Go at once, without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def garbage(connection: socket.socket) -> None:
    """Speak another language, and stay."""
    # NB: the other side may hang up in the middle of it
    with suppress(OSError):
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(100_000))


def huge_length(connection: socket.socket) -> None:
    """Begin a message of many exabytes, as if everything before had been said."""
    with suppress(OSError):
        connection.sendall(b"\xff" * 64)


def half_a_handshake(connection: socket.socket) -> None:
    """Begin as is right, and stay."""
    connection.sendall(bytes(32))
    assert len(connection.recv(32, socket.MSG_WAITALL)) == 32


STRANGERS: tuple[Callable[[socket.socket], None], ...] = (
    silent,
    closing,
    resetting,
    garbage,
    huge_length,
    half_a_handshake,
)


def is_closed_to_others(address: Address) -> bool:
    """Return whether another user cannot connect to a Unix socket; asks as root only."""
    # NB: not in a copy of this process, which would shut down Py4J's connections of other threads
    program = [sys.executable, "-c", _CONNECT, str(socket_path(address.socket)), str(NOBODY)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    return done.stderr.rpartition("\n")[0].rpartition("\n")[2].startswith("PermissionError")


_CONNECT = """
import os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
"""
