"""Sends batches to other levels: rows are divided between the targets as whole arrays."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import singledispatch
from itertools import cycle
from typing import Any, ClassVar

import numpy as np

from holdfast.datastream.columns.batch import Batch, BatchList
from holdfast.datastream.columns.keys import keys_of_batch
from holdfast.graph import nodes
from holdfast.plan.model import Exchange
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.routing import Outbox, Router, rebalance_targets, rescale_targets
from holdfast.state.column_keys import column_targets

#: the parts of a batch, each with its target
Parts = Iterable[tuple[int, Batch]]
_Divide = Callable[[Batch], Parts]

#: batches with fewer rows per target go to the targets in turn, and are not cut
_FEW = 256


def make_router(exchange: Exchange, subtask: int, report: FailureReporter) -> Router:
    """Return the router of an exchange."""
    return (BatchRouter if exchange.columnar else Router)(exchange, subtask, report)


class BatchRouter(Router):
    """The buffers of an exchange of batches."""

    largest: ClassVar = 65536

    def __init__(self, exchange: Exchange, subtask: int, report: FailureReporter) -> None:
        super().__init__(exchange, subtask, report)
        self.limit = 4096
        self.buffers = [BatchList() for _ in range(exchange.target_parallelism)]
        self._waiting_rows = [0] * exchange.target_parallelism
        self._divide: _Divide = _divider(exchange.partitioning, self)
        self.emit = self._emit

    def open(self, outbox: Outbox) -> None:
        super().open(outbox)
        self._waiting_rows = [0] * len(self.buffers)

    def _emit(self, record: Batch, item: Batch) -> None:
        try:
            parts = self._divide(item)
        except Exception as error:
            self.report.at(item, error)
        for target, part in parts:
            for first in range(0, len(part), self.largest):
                self._add(target, part.slice(first, self.largest))

    def _add(self, target: int, part: Batch) -> None:
        self.buffers[target].append(part)
        self._waiting_rows[target] += len(part)
        if self._waiting_rows[target] >= self.limit:
            self.flush(target)

    def _send(self, target: int) -> None:
        super()._send(target)
        self._waiting_rows[target] = 0


@singledispatch
def _divider(partitioning: nodes.Partitioning, router: BatchRouter) -> _Divide:
    message = f"no way to divide batches for {type(partitioning).__name__}"
    raise NotImplementedError(message)


@_divider.register
def _(partitioning: nodes.Forward, router: BatchRouter) -> _Divide:
    return lambda batch: ((router.subtask, batch),)


@_divider.register
def _(partitioning: nodes.Global, router: BatchRouter) -> _Divide:
    return lambda batch: ((0, batch),)


@_divider.register
def _(partitioning: nodes.Rebalance, router: BatchRouter) -> _Divide:
    return _in_turn(rebalance_targets(router))


@_divider.register
def _(partitioning: nodes.Rescale, router: BatchRouter) -> _Divide:
    return _in_turn(rescale_targets(router))


@_divider.register
def _(partitioning: nodes.Shuffle, router: BatchRouter) -> _Divide:
    count, draw = router.exchange.target_parallelism, random.Random(router.subtask).randbytes

    def divide(batch: Batch) -> Parts:
        drawn = np.frombuffer(draw(2 * len(batch)), np.uint16) % np.uint16(count)
        return batch.split(drawn, count)

    return divide


@_divider.register
def _(partitioning: nodes.Broadcast, router: BatchRouter) -> _Divide:
    targets = range(router.exchange.target_parallelism)
    return lambda batch: [(target, batch) for target in targets]


@_divider.register
def _(partitioning: nodes.Hash, router: BatchRouter) -> _Divide:
    selector, exchange = partitioning.selector, router.exchange
    count, groups = exchange.target_parallelism, exchange.max_parallelism
    if count == 1:
        return lambda batch: ((0, batch),)

    def divide(batch: Batch) -> Parts:
        keys = keys_of_batch(selector, batch.rows)
        return batch.split(column_targets(keys, count, groups), count)

    return divide


def _in_turn(targets: Any) -> _Divide:
    count, turn = len(targets), cycle(targets)

    def divide(batch: Batch) -> Parts:
        size = -(-len(batch) // count)
        if count == 1 or size < _FEW:
            return ((next(turn), batch),)
        return [(next(turn), batch.slice(at, size)) for at in range(0, len(batch), size)]

    return divide
