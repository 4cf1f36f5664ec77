"""Sends records to other levels: one router per exchange, a buffer per target, blocks in an outbox.

A router has a function ``emit(record, item)``. Buffers are bounded: a full one becomes a block at
once, so a subtask never holds more than a block per target. Records that are partitioned by key are
collected first, because computing the targets of many keys together takes a fraction of the time.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, singledispatch
from itertools import cycle
from typing import Any, ClassVar, NoReturn

from holdfast.common._type_infos.base import same
from holdfast.common.callables import described, with_place
from holdfast.common.typeinfo import TypeInformation
from holdfast.datastream.columns.batch import count_rows
from holdfast.datastream.functions import Function, RuntimeContext
from holdfast.errors import JobDefinitionError
from holdfast.graph import nodes
from holdfast.plan.model import Exchange, Plan
from holdfast.runtime.failures import FailureReporter, shorten
from holdfast.runtime.wire.blocks import Block, BlockHeader, BlockQueue, Kind, encode_records
from holdfast.runtime.wire.protocol import Flow, encode
from holdfast.runtime.worker.logs import at_work, take
from holdfast.state.key_groups import KeyRouter, unusable_key
from holdfast.state.types.key_forms import key_form

Emit = Callable[[Any], None]
#: takes a record, and the item to send: the record, or a pair of the record and its timestamp
Route = Callable[[Any, Any], None]

SMALLEST_BLOCK = 16
LARGEST_BLOCK = 8192
_BLOCK_BYTES = 512 * 1024
#: how many records are collected before their targets are computed
TOGETHER = 1024
#: blocks that wait longer than this for credit become smaller, in seconds. So little is in transit
#: to a slow subtask, and what follows the records, such as a barrier, arrives soon
_LONG_WAIT = 0.1
#: blocks do not grow if one had to wait at least this long, in seconds
_SHORT_WAIT = 0.01


class Outbox:
    """The blocks that are ready to leave a subtask, numbered per target.

    Attributes:
        held_up: how long blocks had to wait for credit, in seconds.
    """

    def __init__(self, level: int, subtask: int, stamp: str) -> None:
        """Create an empty outbox for one run of a subtask."""
        self.level = level
        self.subtask = subtask
        self.stamp = stamp
        self.ready = BlockQueue()
        self.records = 0
        self.held_up = 0.0
        #: what was sent so far, by exchange
        self.sent: defaultdict[int, Flow] = defaultdict(Flow)
        self._numbers: defaultdict[tuple[int, int], int] = defaultdict(int)

    def send_records(self, exchange: Exchange, target: int, records: list[Any]) -> int:
        """Make a block of records; return its size in bytes."""
        data = encode_records(records)
        count = count_rows(records)
        self.records += count
        flow = self.sent[exchange.id]
        flow.records += count
        flow.bytes += len(data)
        self.send(Kind.RECORDS, exchange.target_level, target, data, exchange.id, count)
        return len(data)

    def send(
        self,
        kind: Kind,
        level: int,
        target: int,
        data: bytes,
        exchange: int = -1,
        count: int = 0,
        operator: int = -1,
    ) -> None:
        """Number a block and send it."""
        number = self._numbers[level, target]
        self._numbers[level, target] = number + 1
        header = BlockHeader(
            kind,
            level,
            target,
            exchange,
            self.level,
            self.subtask,
            number,
            count,
            self.stamp,
            operator,
        )
        self._hand_on(Block(header, data))

    def announce(self, plan: Plan, data: bytes) -> None:
        """Send a control message to all downstream subtasks."""
        for level in plan.targets(self.level):
            for target in range(plan.levels[level].parallelism):
                self.send(Kind.CONTROL, level, target, data)

    def tell_driver(self, plan: Plan, kind: Kind, data: bytes) -> None:
        """Send a message to the driver, after the lines that were logged before it."""
        self.send_log(plan.driver_level, self.subtask)
        self.send(kind, plan.driver_level, self.subtask, data)

    def count_anew(self) -> None:
        """Reset the counts of what was sent."""
        self.records = 0
        self.held_up = 0.0
        self.sent = defaultdict(Flow)

    def _hand_on(self, block: Block) -> None:
        """Put a numbered block into the outbox."""
        self.ready.append(block)

    def send_log(self, level: int, target: int) -> None:
        """Send the lines that were logged, if there are any."""
        lines = take()
        if lines:
            self.send(Kind.LOG, level, target, encode(lines), count=len(lines))

    def take(self) -> Iterator[Block]:
        """Return all blocks that are ready; the outbox is empty afterwards."""
        if not self.ready:
            return iter(())
        blocks, self.ready = self.ready, BlockQueue()
        return iter(blocks)


class Router:
    """The buffers of one exchange in one subtask, and ``emit``, which fills them.

    Attributes:
        largest: the largest number of records in a block.
    """

    largest: ClassVar = LARGEST_BLOCK

    def __init__(self, exchange: Exchange, subtask: int, report: FailureReporter) -> None:
        """Build ``emit`` for the exchange's partitioning."""
        self.exchange = exchange
        self.subtask = subtask
        self.report = report
        self.buffers: list[list[Any]] = [[] for _ in range(exchange.target_parallelism)]
        self.limit = 256
        self._outbox: Outbox | None = None
        #: all routers that send to the same operator
        self._companions: tuple[Router, ...] = (self,)
        #: for partitioning by key: the selector, and the collected keys and items
        self.selector = _selector(exchange.partitioning)
        self.keys: list[Any] = []
        self.waiting: list[Any] = []
        self._targets = KeyRouter(
            exchange.target_parallelism,
            exchange.max_parallelism,
            _key_check(exchange.partitioning),
        )
        self.emit: Route = _make_emit(exchange.partitioning, self)

    def open(self, outbox: Outbox) -> None:
        """Send to this outbox from now on; drop what a failed run left in the buffers."""
        self._outbox = outbox
        for buffer in (*self.buffers, self.keys, self.waiting):
            buffer.clear()

    def open_functions(self, context: RuntimeContext) -> None:
        """Open a key selector or partitioner that is a function object."""
        partitioning = self.exchange.partitioning
        for name in ("selector", "partitioner"):
            function = getattr(partitioning, name, None)
            if isinstance(function, Function):
                with at_work(self.report):
                    try:
                        function.open(context)
                    except Exception as error:
                        self.report.during("open", error)

    def accompany(self, routers: Iterable[Router]) -> None:
        """Find the routers that send to the same operator."""
        ours = self.exchange.target
        self._companions = tuple(each for each in routers if each.exchange.target == ours)

    def flush(self, target: int) -> None:
        """Send what is buffered for a target, and what is buffered for its other inputs.

        There is no order between inputs. But where streams are joined, records of about the same
        time should arrive at about the same time, instead of the few records of one input after all
        records of the other. So they are sent together, the smallest buffer first.
        """
        for router in self._companions:
            router._deal()
        for router in sorted(self._companions, key=lambda each: len(each.buffers[target])):
            router._send(target)

    def flush_all(self) -> None:
        """Send everything that is buffered."""
        for target in range(len(self.buffers)):
            self.flush(target)

    def distribute(self) -> None:
        """Move the collected records to the buffers of their targets, and send full buffers."""
        self._deal()
        for target, buffer in enumerate(self.buffers):
            if len(buffer) >= self.limit:
                self.flush(target)

    def _deal(self) -> None:
        if not self.waiting:
            return
        try:
            targets = self._targets.targets(self.keys)
        except Exception as error:
            self._blame(error)
        buffers = self.buffers
        for target, item in zip(targets, self.waiting, strict=True):
            buffers[target].append(item)
        self.keys.clear()
        self.waiting.clear()

    def _blame(self, error: Exception) -> NoReturn:
        """Raise an error that names the first collected record whose key cannot be used."""
        for key, item in zip(self.keys, self.waiting, strict=True):
            try:
                self._targets.targets([key])
            except Exception as cause:
                record = item[0] if self.exchange.timestamped else item
                self.report.at(record, self._unusable_key(key) or self._unfit_key(key) or cause)
        raise error

    def _unusable_key(self, key: Any) -> Exception | None:
        """Return the error for a key of a type that cannot be a key, at the selector's line."""
        found = unusable_key(key)
        if found is None:
            return None
        # NB: what Python says about the same key, and where, is no news
        found.__suppress_context__ = True
        return with_place(found.with_traceback(None), self.selector)

    def _unfit_key(self, key: Any) -> Exception | None:
        """Return the error for a key that is not of its declared type, which names the selector."""
        partitioning = self.exchange.partitioning
        assert isinstance(partitioning, nodes.Hash)
        try:
            _fitting(self.selector, partitioning.key_type)(key)
        except (TypeError, ValueError) as error:
            return error
        return None

    def _send(self, target: int) -> None:
        buffer = self.buffers[target]
        if buffer:
            assert self._outbox is not None
            waited = self._outbox.held_up
            try:
                size = self._outbox.send_records(self.exchange, target, buffer)
            except Exception as error:
                self.report.sending(buffer, error)
            self._adapt(size, count_rows(buffer), self._outbox.held_up - waited)
            buffer.clear()

    def _adapt(self, size: int, count: int, waited: float) -> None:
        """Adapt the number of records in a block to the wanted number of bytes."""
        if waited > _LONG_WAIT:
            shorter = int(min(self.limit, count) * _LONG_WAIT / waited)
            self.limit = max(SMALLEST_BLOCK, shorter)
            return
        fitting = count * _BLOCK_BYTES // max(size, 1)
        if fitting < self.limit:
            self.limit = max(SMALLEST_BLOCK, fitting) if size > _BLOCK_BYTES else self.limit
        elif count >= self.limit and waited < _SHORT_WAIT:
            self.limit = min(self.largest, self.limit * 2)


def rebalance_targets(router: Router) -> Sequence[int]:
    """Return all targets, each subtask beginning with another one."""
    count = router.exchange.target_parallelism
    first = router.subtask % count
    return [*range(first, count), *range(first)]


def rescale_targets(router: Router) -> Sequence[int]:
    """Return the targets of this subtask alone, or the one that it shares with others."""
    ours, theirs = router.exchange.source_parallelism, router.exchange.target_parallelism
    if theirs <= ours:
        return [router.subtask * theirs // ours]
    first = -(-router.subtask * theirs // ours)
    last = -(-(router.subtask + 1) * theirs // ours)
    return range(first, max(last, first + 1))


@singledispatch
def _make_emit(partitioning: nodes.Partitioning, router: Router) -> Route:
    message = f"no router for {type(partitioning).__name__}"
    raise NotImplementedError(message)


def _emit_to(router: Router, target: int) -> Route:
    buffer, flush = router.buffers[target], router.flush

    def emit(record: Any, item: Any) -> None:
        buffer.append(item)
        if len(buffer) >= router.limit:
            flush(target)

    return emit


def _round_robin(router: Router, targets: Sequence[int]) -> Route:
    if len(targets) == 1:
        return _emit_to(router, targets[0])
    buffers, flush = router.buffers, router.flush
    turn = cycle(targets).__next__

    def emit(record: Any, item: Any) -> None:
        target = turn()
        buffer = buffers[target]
        buffer.append(item)
        if len(buffer) >= router.limit:
            flush(target)

    return emit


def _emit_chosen(router: Router, choose: Callable[[Any], int]) -> Route:
    """Send each record to the target that is chosen for it; ``choose`` may call user code."""
    buffers, flush, report = router.buffers, router.flush, router.report

    def emit(record: Any, item: Any) -> None:
        try:
            target = choose(record)
        except Exception as error:
            report.at(record, error)
        buffer = buffers[target]
        buffer.append(item)
        if len(buffer) >= router.limit:
            flush(target)

    return emit


@_make_emit.register
def _(partitioning: nodes.Forward, router: Router) -> Route:
    return _emit_to(router, router.subtask)


@_make_emit.register
def _(partitioning: nodes.Global, router: Router) -> Route:
    return _emit_to(router, 0)


@_make_emit.register
def _(partitioning: nodes.Rebalance, router: Router) -> Route:
    return _round_robin(router, rebalance_targets(router))


@_make_emit.register
def _(partitioning: nodes.Rescale, router: Router) -> Route:
    targets = rescale_targets(router)
    return _emit_to(router, targets[0]) if len(targets) == 1 else _round_robin(router, targets)


@_make_emit.register
def _(partitioning: nodes.Shuffle, router: Router) -> Route:
    count, draw = router.exchange.target_parallelism, random.Random(router.subtask).randrange
    return _emit_chosen(router, lambda record: draw(count))


@_make_emit.register
def _(partitioning: nodes.Broadcast, router: Router) -> Route:
    emits = [_emit_to(router, target) for target in range(router.exchange.target_parallelism)]

    def emit(record: Any, item: Any) -> None:
        for send in emits:
            send(record, item)

    return emit


@_make_emit.register
def _(partitioning: nodes.Hash, router: Router) -> Route:
    keys, waiting, selector = router.keys, router.waiting, router.selector

    def emit(record: Any, item: Any) -> None:
        try:
            key = selector(record)
        except Exception as error:
            router.report.at(record, error)
        keys.append(key)
        waiting.append(item)
        if len(waiting) >= TOGETHER:
            router.distribute()

    return emit


@_make_emit.register
def _(partitioning: nodes.Custom, router: Router) -> Route:
    count, selector = router.exchange.target_parallelism, router.selector
    partition = getattr(partitioning.partitioner, "partition", partitioning.partitioner)
    return _emit_chosen(
        router, lambda record: _check_target(partition(selector(record), count), count)
    )


def _selector(partitioning: nodes.Partitioning) -> Callable[[Any], Any]:
    """Return the function that finds the key of a record; a partitioner gets the key unchanged."""
    key_type = partitioning.key_type if isinstance(partitioning, nodes.Hash) else None
    return key_function(getattr(partitioning, "selector", None), key_type)


def key_function(
    selector: Any, key_type: TypeInformation | None = None, checked: bool = False
) -> Callable[[Any], Any]:
    """Return the function from a record to its key, in the form in which keys are stored.

    ``checked``: raise a helpful error for a key that cannot be used. Otherwise a router has checked
    it already.
    """
    select: Callable[[Any], Any] = getattr(selector, "get_key", selector)
    form = key_form(key_type)
    if form is not None:
        freeze = _fitting(select, key_type, form.freeze)
        return lambda record: freeze(select(record))
    return partial(_usable_key, select, _fitting(select, key_type)) if checked else select


def _usable_key(
    select: Callable[[Any], Any], fit: Callable[[Any], object] | None, record: Any
) -> Any:
    key = select(record)
    try:
        hash(key)
    except TypeError:
        raise unusable_key(key) or TypeError(repr(key)) from None
    if fit is not None:
        fit(key)
    return key


def _key_check(partitioning: nodes.Partitioning) -> Callable[[Iterable[Any]], object] | None:
    """Return a fast function that raises an error if a key is not of its declared type.

    None if there is no declared type, or if the selector checks every key anyway.
    """
    key_type: TypeInformation | None = getattr(partitioning, "key_type", None)
    return None if key_type is None or key_form(key_type) is not None else key_type.checker()


def _fitting(
    select: Any, key_type: TypeInformation | None, convert: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """Return a function that converts a key, and names the selector if it does not fit its type."""
    convert = convert or (key_type and key_type.coercer()) or same

    def fit(key: Any) -> Any:
        try:
            return convert(key)
        except (TypeError, ValueError) as error:
            message = (
                f"the key {shorten(key)} ({type(key).__name__}) does not fit the declared "
                f"key_type {key_type!r}: {error}; return a key of this type from the key selector "
                f"{described(select)}, or declare the type that it returns"
            )
            raise with_place(type(error)(message), select) from None

    return fit


def _check_target(target: Any, count: int) -> int:
    if not isinstance(target, int) or not 0 <= target < count:
        raise JobDefinitionError(
            f"the partitioner must return an int from 0 to {count - 1}; got {target!r}"
        )
    return target
