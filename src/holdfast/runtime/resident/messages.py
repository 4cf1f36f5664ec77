"""The messages between slots, and between a slot and the driver.

A message is one of `holdfast.runtime.network.peers`. The first byte of its head is its kind; the
rest of the head and the data depend on the kind. Both sides have proved that they have the job's
key before the first message.

    slot → driver   HELLO, READY, BLOCK (acknowledgements, failures, results, log), STORED, ANSWER,
                    PROGRESS, LOST, ALIVE
    driver → slot   WELCOME, ROUND, QUERY, CREDIT, STOP, ALIVE
    slot → slot     HELLO, BLOCK (records and marks), CREDIT, ALIVE
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.runtime.network.peers import Line
from holdfast.runtime.wire.protocol import EpochTask, Origin, Progress

#: the epoch of a mark that does not end an epoch
TIME_ONLY = -1


class Say(IntEnum):
    """The kind of a message."""

    HELLO = 1
    WELCOME = 2
    READY = 3
    ROUND = 4
    BLOCK = 5
    CREDIT = 6
    STORED = 7
    QUERY = 8
    ANSWER = 9
    LOST = 10
    ALIVE = 11
    STOP = 12
    PROGRESS = 13


class Hello(msgspec.Struct, frozen=True):
    """The first message of a connection, which says who connects.

    Attributes:
        slot: its number. To the driver, which assigns the numbers: that of its Spark task.
        host, port: where the slot listens for other slots.
        machine: the name of its host.
        process: its process id, for messages.
    """

    job: str
    attempt: int
    slot: int
    host: str = ""
    port: int = 0
    machine: str = ""
    process: int = 0


class Welcome(msgspec.Struct, frozen=True):
    """The number of a slot, and the addresses of all slots of the attempt, by number."""

    slot: int
    slots: tuple[tuple[str, int], ...]


class Round(msgspec.Struct, frozen=True, omit_defaults=True):
    """The start of an epoch: the tasks for the subtasks of each level.

    In the first round of an attempt, all slots get the heads of all subtasks, so their total size
    grows with the square of the number of slots. Each head is in the message only once: see
    `pack_round`.

    Attributes:
        origin: the origin of all tasks. A task without heads has those of the origin.
    """

    tasks: tuple[EpochTask, ...]
    origin: Origin | None = None

    def unpacked(self) -> tuple[EpochTask, ...]:
        """Return the original tasks."""
        if self.origin is None:
            return self.tasks
        return tuple(
            replace(task, origin=self.origin, heads=task.heads or self.origin.levels[task.level])
            for task in self.tasks
        )


def pack_round(tasks: Sequence[EpochTask]) -> Round:
    """Return the message for the tasks of one epoch, which have the same origin."""
    origin = tasks[0].origin if tasks else None
    if origin is None:
        return Round(tuple(tasks))
    return Round(
        tuple(
            replace(
                task,
                origin=None,
                heads=() if task.heads in origin.levels[task.level :][:1] else task.heads,
            )
            for task in tasks
        ),
        origin,
    )


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A message from a producer subtask to a consumer subtask, between records.

    Attributes:
        epoch: the epoch that ends here; `TIME_ONLY` if none does.
        aligned: nothing after it may be read before all producers have sent this mark.
        ended: no records follow.
        watermarks: the watermark on each exchange; None where it is idle.
    """

    epoch: int = TIME_ONLY
    aligned: bool = False
    ended: bool = False
    watermarks: dict[int, int | None] = {}


class Credited(msgspec.Struct, frozen=True, array_like=True):
    """Grants this many more bytes on a channel; a negative number takes them back.

    A channel is identified by level and number of its two subtasks, except one to the driver.
    """

    bytes: int
    producer_level: int = -1
    producer: int = -1
    level: int = -1
    subtask: int = -1


class Query(msgspec.Struct, frozen=True):
    """A query of the state of a key; key and window are pickled."""

    number: int
    level: int
    subtask: int
    operator: str
    state: str
    key: bytes


class Answer(msgspec.Struct, frozen=True):
    """The result of a query, or an error; pickled."""

    number: int
    value: bytes = b""
    failure: bytes = b""


class Stop(msgspec.Struct, frozen=True):
    """The attempt is over; ``ended``: the job is over too."""

    ended: bool = False


encode = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_welcome = msgspec.msgpack.Decoder(Welcome).decode
decode_round = msgspec.msgpack.Decoder(Round).decode
decode_mark = msgspec.msgpack.Decoder(Mark).decode
decode_credited = msgspec.msgpack.Decoder(Credited).decode
decode_query = msgspec.msgpack.Decoder(Query).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_progress = msgspec.msgpack.Decoder(tuple[Progress, ...]).decode
decode_stop = msgspec.msgpack.Decoder(Stop).decode


class Frame(NamedTuple):
    """A message that was received."""

    kind: int
    head: memoryview
    data: memoryview


class Wire:
    """A connection on which any number of threads may send."""

    def __init__(self, line: Line) -> None:
        """Take over a connection."""
        self._line = line
        self._sending = threading.Lock()

    def send(self, kind: Say, head: bytes = b"", data: Any = b"") -> None:
        """Send a message.

        Raises:
            OSError: when the other side has closed the connection.
        """
        with self._sending:
            self._line.send(bytes((kind,)) + head, data)

    def receive(self) -> Frame:
        """Return the next message.

        Raises:
            EOFError, OSError: when there is none because the other side has closed the connection.
        """
        head, data = self._line.receive()
        if not head:
            raise ConnectionError("a message has no kind")
        return Frame(head[0], head[1:], data)

    def expect_words_within(self, seconds: float) -> None:
        """Make `receive` raise a TimeoutError when nothing arrives for this long."""
        self._line.limit_silence(seconds)

    def close(self) -> None:
        """Close the connection, for both sides."""
        self._line.hang_up()
        self._line.close()
