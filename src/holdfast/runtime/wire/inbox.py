"""Puts the blocks from each producer back into order, and verifies that all of them arrived.

Invariant: the blocks from one producer are passed on by their numbers, without a gap, and the
control block is the last. Consequence: records of one key keep their order, and a subtask that saw
the control block of every producer has received everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.errors import DisagreementError, InternalError
from holdfast.plan.model import ROWS_LEVEL, Exchange
from holdfast.runtime.event_time import END, Watermark
from holdfast.runtime.wire.blocks import Block, Kind
from holdfast.runtime.wire.protocol import Control, decode_control

Producer = tuple[int, int]


class Inbox:
    """The blocks for one subtask in one epoch."""

    def __init__(self, level: int, subtask: int) -> None:
        """Expect blocks for this subtask."""
        self._level = level
        self._subtask = subtask
        self._next: dict[Producer, int] = {}
        self._early: dict[tuple[Producer, str], dict[int, Block]] = {}
        #: the stamp of the run whose blocks were read, for each producer
        self.stamps: dict[Producer, str] = {}
        #: the control block of each producer
        self.controls: dict[Producer, Control] = {}

    def in_order(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Yield the record blocks for this subtask in their producers' order, others unchanged."""
        for block in blocks:
            header = block.header
            if header.level != self._level:
                yield block
                continue
            producer = (header.producer_level, header.producer)
            self._check_stamp(producer, header.stamp)
            if header.number != self._next.get(producer, 0):
                self._early.setdefault((producer, header.stamp), {})[header.number] = block
                continue
            yield from self._hand_on(producer, block)

    def check_complete(self, expected: Iterable[Producer]) -> None:
        """Check that every expected producer has sent its control block, and nothing is left over.

        Raises:
            InternalError: when input is missing.
        """
        missing = sorted(set(expected) - set(self.controls))
        left = sorted(producer for (producer, _), early in self._early.items() if early)
        if missing or left:
            raise InternalError(
                f"subtask {self._subtask} of level {self._level} did not get all of its input: "
                f"no control block from {missing}, gaps from {left}"
            )

    def watermarks(self, exchange: Exchange) -> list[Watermark]:
        """Return the watermarks of the producers of an exchange."""
        return [
            _watermark(exchange, control)
            for (level, subtask), control in self.controls.items()
            if level == exchange.source_level
            and (level == ROWS_LEVEL or subtask < exchange.source_parallelism)
        ]

    def failed(self) -> list[str]:
        """Return the stamps of the producers' runs that failed."""
        return sorted(
            self.stamps[producer] for producer, control in self.controls.items() if control.failed
        )

    def _hand_on(self, producer: Producer, block: Block | None) -> Iterator[Block]:
        early = self._early.get((producer, self.stamps[producer]), {})
        while block is not None:
            self._next[producer] = block.header.number + 1
            if block.header.kind == Kind.CONTROL:
                self.controls[producer] = decode_control(block.data)
            else:
                yield block
            block = early.pop(self._next[producer], None)

    def _check_stamp(self, producer: Producer, stamp: str) -> None:
        known = self.stamps.setdefault(producer, stamp)
        if known != stamp:
            raise DisagreementError(
                f"subtask {self._subtask} of level {self._level} got blocks of two runs of its "
                f"producer {producer}: {known} and {stamp}"
            )


def _watermark(exchange: Exchange, control: Control) -> Watermark:
    if exchange.source_level == ROWS_LEVEL:  # rows have no timestamps of their own
        return END if control.ended else Watermark()
    time = control.watermarks.get(exchange.id, Watermark().time)
    return Watermark(idle=True) if time is None else Watermark(time)
