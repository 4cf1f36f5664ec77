"""Carries the blocks of a task to the process where its subtask lives, and what it returns.

    the process that got the task            the process where the subtask lives

      place, task ─────────────────────────►
                  ◄───────────────── yes, or no: the process that got the task runs it
      blocks, end ─────────────────────────►
                  ◄───────────── blocks, end
                  ◄─────── failure, or None

Processes of one executor end together, and the connection of a process that ends is closed. Another
executor may be on a host that vanishes, and nothing closes the connection then. So between two
executors both sides send a heartbeat, and a side that hears nothing for a while gives up.
"""

from __future__ import annotations

import pickle
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Final

from holdfast.common.options.ports import ANY_PORT, Ports
from holdfast.errors import InternalError
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.peers import GONE, Line, Message, connect
from holdfast.runtime.wire.blocks import Block, decode_header, encode_header

#: the head of a heartbeat; that of a block is longer, and that of any other message is empty
_ALIVE: Final = b"."


@dataclass(frozen=True)
class Network:
    """How the processes of a job reach each other.

    Attributes:
        key: the key of the job.
        one_host: whether all processes are on one machine, so that Unix sockets are enough.
        certificate: encrypts connections between hosts, if it is not empty.
        ports: the ports on which processes may listen.
        silence: after so many seconds without a message, a process of another executor is lost.
    """

    key: bytes
    one_host: bool = True
    certificate: bytes = b""
    ports: Ports = ANY_PORT
    silence: float = 10.0

    def connect(self, address: Address, patience: float) -> Line:
        """Connect to another process.

        Raises:
            PeerError: when no process listens there, or it does not prove within ``patience``
                seconds that it has the key.
        """
        certificate = b"" if address.socket else self.certificate
        return connect(address.opened_by(self.key), patience, certificate)


class Carriage:
    """A connection that carries blocks. One thread may send while another one receives."""

    def __init__(self, line: Line, silence: float | None) -> None:
        """Use a connection; with ``silence``, send heartbeats, and expect some within that time."""
        self._line = line
        self._sending = threading.Lock()
        self._over = threading.Event()
        if silence is not None:
            line.limit_waiting(silence)
            arguments = (silence / 5,)
            threading.Thread(target=self._say_alive, args=arguments, daemon=True).start()

    def send(self, blocks: Iterable[Block]) -> None:
        """Send blocks, and a message that marks the end."""
        for block in blocks:
            self._send(encode_header(block.header), block.data)
        self._send()

    def receive(self) -> Iterator[Block]:
        """Yield blocks, until there are no more."""
        while (message := self._next()).head:
            yield Block(decode_header(message.head), message.data)

    def end(self, failure: Exception | None) -> None:
        """Tell the other side whether the run failed, and wait until it has heard that."""
        told = None if failure is None else _portable(failure)
        self._send(data=pickle.dumps(told, 5))
        self._line.wait()

    def carry(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Send blocks to a subtask, and yield those that it returns."""
        problems: list[BaseException] = []
        carrier = threading.Thread(target=self._bring, args=(blocks, problems), daemon=True)
        with closing(self):
            carrier.start()
            try:
                yield from self.receive()
                failure = pickle.loads(self._next().data)
            except GONE as error:
                raise _lost(problems) from error
            finally:
                self._line.hang_up()
                carrier.join()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Close the connection."""
        self._over.set()
        self._line.close()

    def _bring(self, blocks: Iterable[Block], problems: list[BaseException]) -> None:
        try:
            self.send(blocks)
        except BaseException as error:
            problems.append(error)
            self._line.hang_up()

    def _send(self, head: bytes = b"", data: bytes | memoryview = b"") -> None:
        with self._sending:
            self._line.send(head, data)

    def _next(self) -> Message:
        """Return the next message that is not a heartbeat."""
        while len((message := self._line.receive()).head) == len(_ALIVE):
            pass
        return message

    def _say_alive(self, interval: float) -> None:
        with suppress(*GONE):
            while not self._over.wait(interval):
                self._send(_ALIVE)


def _lost(problems: list[BaseException]) -> BaseException:
    own = [problem for problem in problems if not isinstance(problem, GONE)]
    message = (
        "the worker process in which a subtask lived has ended, or cannot be reached; find the "
        "cause"
    )
    return own[0] if own else InternalError(message)


def _portable(error: Exception) -> Exception:
    """Return an exception that can be pickled for another process, with its traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    with suppress(Exception):
        restored: Any = pickle.loads(pickle.dumps(error))
        return restored if isinstance(restored, Exception) else InternalError(str(error))
    return InternalError(f"{type(error).__name__}: {error}")
