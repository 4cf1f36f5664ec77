"""Carries the blocks of a slot: to other slots, to the driver, and between its own subtasks.

A block for a subtask of the same slot goes to its inputs directly. Every other block goes over a
connection, in the order in which it was sent. There is one connection between any two slots that
share a channel.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.peers import GONE, Line, connect
from holdfast.runtime.network.sockets import check_room
from holdfast.runtime.resident.channels import Credit, Leaving
from holdfast.runtime.resident.messages import (
    Credited,
    Frame,
    Hello,
    Say,
    Welcome,
    Wire,
    decode_credited,
    decode_hello,
    encode,
)
from holdfast.runtime.resident.pace import SMALLEST_WINDOW
from holdfast.runtime.wire.blocks import Block, Kind, decode_header, encode_header
from holdfast.runtime.wire.inbox import Producer
from holdfast.runtime.wire.protocol import StoredState
from holdfast.runtime.worker.job_code import JobCode

#: how long a peer may take to connect and answer, in seconds
PATIENCE: Final = 30.0
#: maximum number of bytes of results on the way to the driver
_RESULTS: Final = 16 << 20
#: blocks that wait for room
_WAITING: Final = (Kind.RECORDS, Kind.RESULT)

#: a subtask: its level and number
Place = tuple[int, int]


class Carrier:
    """The channels of a slot, and the connections that they use.

    Attributes:
        driver: the connection to the driver.
        leaving: the attempt is over.
    """

    def __init__(self, job: JobCode, hello: Hello, driver: Wire) -> None:
        """Carry blocks for the slot that this hello describes."""
        self.driver = driver
        self.leaving = False
        self._plan = job.plan
        self._certificate = job.certificate
        self._hello = hello
        self._inputs: dict[Place, Callable[[Block], None]] = {}
        self._peers: dict[int, Wire] = {}
        self._peer_came = threading.Condition()
        self._results = Credit(_RESULTS)
        self._credits: dict[tuple[Producer, Place], Credit] = {}

    def add(self, level: int, put: Callable[[Block], None]) -> None:
        """Carry blocks for the slot's subtask of a level; ``put`` takes those that arrive."""
        here = level, self._hello.slot
        self._inputs[here] = put
        for target in self._plan.targets(level):
            for subtask in range(self._plan.levels[target].parallelism):
                self._credits[here, (target, subtask)] = Credit(SMALLEST_WINDOW)

    # Other slots

    def meet(self, line: Line) -> None:
        """Serve a slot that has connected and proved that it has the key."""
        wire = Wire(line)
        frame = wire.receive()
        hello = decode_hello(frame.data)
        mine = (hello.job, hello.attempt) == (self._hello.job, self._hello.attempt)
        if frame.kind == Say.HELLO and mine:
            self.know(hello.slot, wire)
            self._listen(hello.slot, wire)

    def call(self, welcome: Welcome, key: str) -> list[int]:
        """Connect to the slots with lower numbers; those with higher numbers connect to this one.

        Return the numbers of the slots that are not connected in time.

        Raises:
            JobExecutionError: when this process may not have that many connections.
        """
        own = self._hello.slot
        others = self._neighbours()
        check_room(len(others), f"slot {own} of {len(welcome.slots)}")
        # NB: in this order, so that not all slots connect to slot 0 first
        for number in sorted((other for other in others if other < own), reverse=True):
            host, port = welcome.slots[number]
            address = Address(key, host=host, port=port)
            wire = Wire(connect(address, PATIENCE, self._certificate))
            wire.send(Say.HELLO, data=encode(self._hello))
            self.know(number, wire)
            name = f"holdfast-peer-{number}"
            threading.Thread(
                target=self._listen, args=(number, wire), name=name, daemon=True
            ).start()
        deadline = time.monotonic() + PATIENCE
        with self._peer_came:
            while not others <= self._peers.keys() and time.monotonic() < deadline:
                self._peer_came.wait(deadline - time.monotonic())
            return sorted(others - self._peers.keys())

    def _neighbours(self) -> set[int]:
        """Return the slots with which this one shares a channel, in either direction."""
        own, levels = self._hello.slot, self._plan.levels
        found: set[int] = set()
        for level in levels:
            for target in self._plan.targets(level.index):
                senders, takers = level.parallelism, levels[target].parallelism
                found.update(range(takers) if own < senders else ())
                found.update(range(senders) if own < takers else ())
        return found - {own}

    def know(self, number: int, wire: Wire) -> None:
        """Use this connection to reach another slot."""
        with self._peer_came:
            self._peers[number] = wire
            self._peer_came.notify_all()

    def _listen(self, number: int, wire: Wire) -> None:
        """Handle the messages of another slot, until it closes the connection."""
        try:
            while True:
                self.take(wire.receive())
        except GONE:
            self.lose(number)
        except Exception as error:
            own = self._hello.slot
            self._report(f"slot {own} cannot read what slot {number} sends: {error!r}")

    def take(self, frame: Frame) -> None:
        """Handle a message of another slot."""
        if frame.kind == Say.BLOCK:
            header = decode_header(frame.head)
            self._inputs[header.level, header.subtask](Block(header, frame.data))
        elif frame.kind == Say.CREDIT:
            self._credit(decode_credited(frame.data))

    def lose(self, number: int) -> None:
        """Report to the driver that another slot cannot be reached any more."""
        self._report(f"slot {self._hello.slot} has lost its connection to slot {number}")

    def _credit(self, credited: Credited) -> None:
        producer = credited.producer_level, credited.producer
        self._credits[producer, (credited.level, credited.subtask)].grant(credited.bytes)

    def _report(self, what: str) -> None:
        if not self.leaving:
            with suppress(*GONE):
                self.driver.send(Say.LOST, data=what.encode())

    # Sending for subtasks (`Post`)

    def send(self, block: Block) -> float:
        """Send a block; return how long it had to wait for credit, in seconds.

        Raises:
            Leaving: when the attempt is over.
        """
        if self.leaving:
            raise Leaving
        header = block.header
        waited = self._room(block).acquire(len(block.data)) if header.kind in _WAITING else 0.0
        if header.level == self._plan.driver_level:
            self._send_over(self.driver, block)
        elif header.subtask == self._hello.slot:
            self._inputs[header.level, header.subtask](block)
        else:
            self._send_over(self._peers[header.subtask], block)
        return waited

    def _room(self, block: Block) -> Credit:
        header = block.header
        if header.kind == Kind.RESULT:
            return self._results
        producer = header.producer_level, header.producer
        return self._credits[producer, (header.level, header.subtask)]

    def _send_over(self, wire: Wire, block: Block) -> None:
        try:
            wire.send(Say.BLOCK, encode_header(block.header), block.data)
        except GONE:
            # NB: the thread that reads from that connection reports what happened to the other side
            raise Leaving from None

    def put_back(self, producer: Producer, target: Place, size: int) -> None:
        """Allow this many more bytes to be sent on a channel."""
        if producer[1] == self._hello.slot:
            self._credits[producer, target].grant(size)
            return
        with suppress(*GONE):
            credited = encode(Credited(size, *producer, *target))
            self._peers[producer[1]].send(Say.CREDIT, data=credited)

    def grant_results(self, size: int) -> None:
        """Allow this many more bytes of results, because the driver has delivered as many."""
        self._results.grant(size)

    def stored(self, state: StoredState) -> None:
        """Report to the driver a state that was written, or could not be written."""
        with suppress(*GONE):
            self.driver.send(Say.STORED, data=encode(state))

    # Heartbeats

    def watch(self, heartbeat: float) -> None:
        """Treat a peer that sends nothing for this many seconds as lost."""
        for wire in (self.driver, *self._peers.values()):
            wire.expect_words_within(heartbeat)

    def say_alive(self) -> None:
        """Send a heartbeat to the driver and the other slots.

        Raises:
            OSError: when the driver is gone. The reading thread notices when another slot is gone.
        """
        self.driver.send(Say.ALIVE)
        for wire in list(self._peers.values()):
            with suppress(*GONE):
                wire.send(Say.ALIVE)

    # The end

    def leave(self) -> None:
        """Release all threads that wait for credit."""
        self.leaving = True
        for credit in (*self._credits.values(), self._results):
            credit.end()

    def close(self) -> None:
        """Close all connections."""
        self.driver.close()
        for wire in self._peers.values():
            wire.close()
