"""What slots, and a slot and the driver, say to each other.

A message is one of `holdfast.runtime.peers`: the first byte of its head is its kind, the rest of
the head and the data are the kind's own. Both sides have proved to have the job's key before the
first one.

    slot → driver   HELLO, READY, BLOCK (acknowledgements, failures, results, log), STORED, ANSWER,
                    LOST, ALIVE
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

from holdfast.runtime.peers import Line
from holdfast.runtime.protocol import EpochTask, Origin

__all__ = [
    "TIME_ONLY",
    "Answer",
    "Credited",
    "Frame",
    "Hello",
    "Mark",
    "Query",
    "Round",
    "Say",
    "Stop",
    "Welcome",
    "Wire",
    "decode_answer",
    "decode_credited",
    "decode_hello",
    "decode_mark",
    "decode_query",
    "decode_round",
    "decode_stop",
    "decode_welcome",
    "encode",
    "pack_round",
]

#: the epoch of a mark that ends none
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


class Hello(msgspec.Struct, frozen=True):
    """Who is calling.

    Attributes:
        slot: its number. To the driver, which gives out the numbers, that of its Spark task.
        host, port: where the slot listens for other slots.
        machine: the name of its host.
        process: for people.
    """

    job: str
    attempt: int
    slot: int
    host: str = ""
    port: int = 0
    machine: str = ""
    process: int = 0


class Welcome(msgspec.Struct, frozen=True):
    """The number of a slot, and where all slots of the attempt listen, by number."""

    slot: int
    slots: tuple[tuple[str, int], ...]


class Round(msgspec.Struct, frozen=True, omit_defaults=True):
    """An epoch begins: what the subtasks of each level are told.

    All slots are sent the chains of all subtasks in the first round of an attempt, so these grow
    with the square of the number of slots. Each is in the message once only: see `pack_round`.

    Attributes:
        origin: that of all tasks. A task without chains has those that are in it.
    """

    tasks: tuple[EpochTask, ...]
    origin: Origin | None = None

    def unpacked(self) -> tuple[EpochTask, ...]:
        """Return the tasks as they were."""
        if self.origin is None:
            return self.tasks
        return tuple(
            replace(task, origin=self.origin, chains=task.chains or self.origin.levels[task.level])
            for task in self.tasks
        )


def pack_round(tasks: Sequence[EpochTask]) -> Round:
    """Return the message for tasks of one epoch, which have one origin."""
    origin = tasks[0].origin if tasks else None
    if origin is None:
        return Round(tuple(tasks))
    return Round(
        tuple(
            replace(
                task,
                origin=None,
                chains=() if task.chains in origin.levels[task.level :][:1] else task.chains,
            )
            for task in tasks
        ),
        origin,
    )


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What a producer subtask says to a consumer subtask, between records.

    Attributes:
        epoch: the epoch that ends here; `TIME_ONLY` if none does.
        aligned: nothing that follows may be read before all producers have said this.
        ended: no records follow.
        watermarks: how far time is on each exchange; None where it is idle.
    """

    epoch: int = TIME_ONLY
    aligned: bool = False
    ended: bool = False
    watermarks: dict[int, int | None] = {}


class Credited(msgspec.Struct, frozen=True, array_like=True):
    """So many bytes more may be sent on a channel; below zero: fewer.

    A channel is named by the level and number of its two subtasks; one to the driver by nothing.
    """

    bytes: int
    producer_level: int = -1
    producer: int = -1
    level: int = -1
    subtask: int = -1


class Query(msgspec.Struct, frozen=True):
    """A look at the state of a key; key and window are pickled."""

    number: int
    level: int
    subtask: int
    operator: str
    state: str
    key: bytes


class Answer(msgspec.Struct, frozen=True):
    """What a query found, or an error; pickled."""

    number: int
    value: bytes = b""
    failure: bytes = b""


class Stop(msgspec.Struct, frozen=True):
    """The attempt is over; ``ended``: and so is the job."""

    ended: bool = False


encode = msgspec.msgpack.Encoder().encode
decode_hello = msgspec.msgpack.Decoder(Hello).decode
decode_welcome = msgspec.msgpack.Decoder(Welcome).decode
decode_round = msgspec.msgpack.Decoder(Round).decode
decode_mark = msgspec.msgpack.Decoder(Mark).decode
decode_credited = msgspec.msgpack.Decoder(Credited).decode
decode_query = msgspec.msgpack.Decoder(Query).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
decode_stop = msgspec.msgpack.Decoder(Stop).decode


class Frame(NamedTuple):
    """A message that came."""

    kind: int
    head: memoryview
    data: memoryview


class Wire:
    """A line on which any number of threads may send."""

    def __init__(self, line: Line) -> None:
        """Take over a line."""
        self._line = line
        self._sending = threading.Lock()

    def send(self, kind: Say, head: bytes = b"", data: Any = b"") -> None:
        """Send a message.

        Raises:
            OSError: when the other side has gone.
        """
        with self._sending:
            self._line.send(bytes((kind,)) + head, data)

    def receive(self) -> Frame:
        """Return the next message.

        Raises:
            EOFError, OSError: when there is none, since the other side has gone.
        """
        head, data = self._line.receive()
        if not head:
            raise ConnectionError("a message has no kind")
        return Frame(head[0], head[1:], data)

    def expect_words_within(self, seconds: float) -> None:
        """Let `receive` raise a TimeoutError when nothing comes for so long."""
        self._line.limit_silence(seconds)

    def close(self) -> None:
        """End it, for both sides."""
        self._line.hang_up()
        self._line.close()
