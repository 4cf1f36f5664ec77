"""What comes out of an epoch's last level: acknowledgements, failures, results, logged lines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError, JobExecutionError
from holdfast.runtime.blocks import Block, Kind
from holdfast.runtime.log_lines import LogLine, decode_line
from holdfast.runtime.protocol import (
    Acknowledgement,
    Failure,
    decode_acknowledgement,
    decode_failure,
    decode_log,
)


class AbandonedError(HoldfastError):
    """Nobody waits for the end of an epoch or of a start any more: the job is cancelled."""


class SlotsMissingError(JobExecutionError):
    """An attempt finds fewer task slots than it needs, and has waited for more."""

    def __init__(self, needed: int, found: int) -> None:
        """Say how many there are, and how many there should be."""
        super().__init__(f"the attempt needs {needed} task slots and found {found}")
        self.needed, self.found = needed, found


class LostSlotError(JobExecutionError):
    """A slot, or what it ran on, is gone; the next attempt may find another one."""


@dataclass
class EpochOutcome:
    """What the subtasks sent to the driver.

    Attributes:
        log: what functions have logged; the lines of each subtask in their order.
        seconds: how long it took the driver to read that.
    """

    acks: list[Acknowledgement] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    results: list[Block] = field(default_factory=list)
    log: list[list[LogLine]] = field(default_factory=list)
    seconds: float = 0.0


def sort_out(blocks: Iterable[Block]) -> EpochOutcome:
    """Decode what is for the driver; results in the order in which each subtask sent them."""
    outcome = EpochOutcome()
    started = time.perf_counter()
    for block in blocks:
        if block.header.kind == Kind.ACKNOWLEDGEMENT:
            outcome.acks.append(decode_acknowledgement(block.data))
        elif block.header.kind == Kind.FAILURE:
            outcome.failures.append(decode_failure(block.data))
        elif block.header.kind == Kind.LOG:
            outcome.log.append([decode_line(line) for line in decode_log(block.data)])
        else:
            outcome.results.append(block)
    outcome.results.sort(
        key=lambda block: (block.header.producer_level, block.header.producer, block.header.number)
    )
    outcome.seconds = time.perf_counter() - started
    return outcome
