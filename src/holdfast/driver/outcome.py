"""The output of an epoch's last level: acknowledgements, failures, results and log lines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError, JobExecutionError
from holdfast.runtime.wire.blocks import Block, Kind
from holdfast.runtime.wire.protocol import (
    Acknowledgement,
    Failure,
    decode_acknowledgement,
    decode_failure,
    decode_log,
)
from holdfast.runtime.worker.log_lines import LogLine, decode_line


class AbandonedError(HoldfastError):
    """The job is cancelled, so an epoch or the start of an attempt was abandoned."""


class SlotsMissingError(JobExecutionError):
    """An attempt has waited for task slots, and found fewer than it needs."""

    def __init__(self, needed: int, found: int) -> None:
        """Take the number of slots that the attempt needs, and the number that it found."""
        super().__init__(f"the attempt needs {needed} task slots and found {found}")
        self.needed, self.found = needed, found


class LostSlotError(JobExecutionError):
    """A slot, or the machine it ran on, is gone; the next attempt may find another one."""


@dataclass
class EpochOutcome:
    """What the subtasks sent to the driver.

    Attributes:
        log: the lines that functions logged, in order for each subtask.
        seconds: how long the driver took to decode all this.
    """

    acks: list[Acknowledgement] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    results: list[Block] = field(default_factory=list)
    log: list[list[LogLine]] = field(default_factory=list)
    seconds: float = 0.0


def sort_out(blocks: Iterable[Block]) -> EpochOutcome:
    """Decode the blocks for the driver; sort results by subtask and the order of sending."""
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
