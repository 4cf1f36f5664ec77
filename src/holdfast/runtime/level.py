"""The operators of one subtask.

``LevelOperators`` creates the operators of a level for one subtask, opens them, connects them,
saves their fields and closes them. It is independent of blocks, epochs and files.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Any

from holdfast.datastream.connectors.base import SplitRecords
from holdfast.datastream.time_domain import TimeDomain
from holdfast.plan.model import Level, Plan
from holdfast.runtime.batch_routing import make_router
from holdfast.runtime.checkpointing import OPERATOR_STATE
from holdfast.runtime.context import Clock
from holdfast.runtime.event_time import (
    END,
    TIME,
    StampingTime,
    Watermark,
    combine,
)
from holdfast.runtime.function_fields import FIELDS
from holdfast.runtime.fusion import Fused, fuse
from holdfast.runtime.operators.asynchronous import AsyncOperator
from holdfast.runtime.operators.base import SubtaskParts
from holdfast.runtime.operators.choosing import make_operator
from holdfast.runtime.operators.event_loop import EventLoop
from holdfast.runtime.operators.sinks import AcceptingOperator, ResultOperator
from holdfast.runtime.routing import Router
from holdfast.runtime.wire.protocol import EpochTask
from holdfast.runtime.worker.job_code import JobCode
from holdfast.runtime.worker.logs import at_work
from holdfast.state.backend import KeyedStateBackend
from holdfast.state.errors import decoding
from holdfast.state.live.operator_state import Image


class LevelOperators:
    """All operators of a level in one subtask."""

    def __init__(
        self,
        job: JobCode,
        level: Level,
        subtask: int,
        attempt: int,
        backend: KeyedStateBackend,
        clock: Clock,
    ) -> None:
        """Create and connect the operators of this subtask."""
        self._backend = backend
        self._loop = EventLoop()
        parts = SubtaskParts(job, subtask, attempt, backend, clock, self._loop)
        self.instances = {
            op.id: make_operator(op, parts)
            for op in (job.plan.operators[op_id] for op_id in level.operators)
            if subtask < op.parallelism
        }
        operators = self.instances.values()
        self._calls = [each.calls for each in operators if isinstance(each, AsyncOperator)]
        self.results = [each.buffer for each in operators if isinstance(each, ResultOperator)]
        self._sinks = {
            each.operator.uid: each.accepted
            for each in operators
            if isinstance(each, AcceptingOperator | ResultOperator)
        }
        self.routers: list[Router] = []
        fused = self._wire(job.plan, level, subtask)
        #: the functions that process the records of an input; for a source, those that it read
        self.inputs = fused.inputs
        for number, emit in fused.outputs.items():
            self.instances[number].emit = emit

    def initialize(self, restored: bool, images: Mapping[str, Image]) -> None:
        """Start an attempt, the last function of the chain first."""
        for instance in reversed(self.instances.values()):
            instance.initialize(restored, images.get(instance.operator.uid))

    def snapshot(self, checkpoint: int, timestamp: int, savepoint: bool) -> str | None:
        """Take part in a checkpoint, the last function first; return why that failed, or None."""
        for instance in reversed(self.instances.values()):
            try:
                instance.snapshot(checkpoint, timestamp, savepoint)
            except Exception as error:
                return f"snapshot_state of '{instance.operator.name}': {error!r}"
        return None

    def notify(self, task: EpochTask) -> None:
        """Notify listeners of checkpoints that ended, the last function first."""
        for instance in reversed(self.instances.values()):
            instance.notify(task.completed, task.aborted)
            if not task.takes_checkpoints:
                instance.epoch_accepted()

    def finish(self) -> None:
        """Finish all operators after the last record."""
        for instance in self.instances.values():
            instance.finish()

    def flush(self) -> None:
        """Forward what operators have collected, in the order of the stream."""
        for instance in self.instances.values():
            instance.flush()

    def end_epoch(self, barrier: bool = True) -> None:
        """End an epoch after its last record; see `Operator.end_epoch`."""
        for instance in self.instances.values():
            instance.end_epoch(barrier)

    def abandon(self) -> None:
        """Abandon a failed run: its external effects must not become visible."""
        for instance in self.instances.values():
            instance.abandon()

    def open(self) -> None:
        """Open all functions, the last of the chain first, as Flink does."""
        for instance in reversed(self.instances.values()):
            instance.open()
        for router in self.routers:
            router.open_functions(self.instances[router.exchange.source].context)

    def restore_fields(self) -> None:
        """Restore the operator states and the fields of functions."""
        for instance in self.instances.values():
            uid = instance.operator.uid
            instance.restore_states(self._backend.get_blob(uid, OPERATOR_STATE))
            instance.fields.restore(self._backend.get_blob(uid, FIELDS))

    def save_fields(self) -> None:
        """Save the fields of functions with the state."""
        for instance in self.instances.values():
            data = instance.fields.save()
            if data is not None:
                self._backend.set_blob(instance.operator.uid, FIELDS, data)

    def save_states(self) -> None:
        """Save the operator states with the state."""
        for instance in self.instances.values():
            image = instance.save_states()
            if image is not None:
                self._backend.set_blob(instance.operator.uid, OPERATOR_STATE, image)

    def restore_time(self) -> None:
        """Restore the watermarks from the loaded state."""
        for instance in self.instances.values():
            uid = instance.operator.uid
            with decoding(f"the time of operator {uid!r}"):
                instance.time.load(self._backend.get_blob(uid, TIME))

    def save_time(self) -> None:
        """Save the watermarks with the state."""
        for instance in self.instances.values():
            self._backend.set_blob(instance.operator.uid, TIME, instance.time.dump())

    def fire_processing_timers(self) -> None:
        """Call functions whose processing-time timers are due."""
        for instance in self.instances.values():
            instance.finish_calls()
            instance.fire(TimeDomain.PROCESSING_TIME)

    def next_processing_timer(self) -> int | None:
        """Return when the next processing-time timer is due; None if there is none."""
        times = [instance.time.next_due() for instance in self.instances.values()]
        return min((time for time in times if time is not None), default=None)

    @property
    def calls_under_way(self) -> bool:
        """Return whether asynchronous calls are under way."""
        return any(len(calls) for calls in self._calls)

    def poll_calls(self, seconds: float) -> bool:
        """Run calls for this long, or until one has a result; forward the results.

        Return whether there was a result.
        """
        self._loop.run_for(seconds)
        ready = [calls.hand_on_ready() for calls in self._calls]
        return any(ready)

    def advance(self, arrived: Mapping[int, list[Watermark]]) -> dict[int, Watermark]:
        """Advance the watermarks, operator by operator; return the watermark of each operator.

        ``arrived``: the watermarks that came through exchanges, or from sources, by the operator
        that received them.
        """
        inputs = {number: list(arrived.get(number, ())) for number in self.instances}
        for number, instance in self.instances.items():
            instance.finish_calls()
            before = instance.time.watermark
            now = combine(inputs[number], before)
            if isinstance(instance.time, StampingTime) and now.time != END.time:
                with at_work(instance.report):
                    now = combine([instance.time.generate()], before)
            instance.time.watermark = now
            if now.time > before.time:
                instance.fire(TimeDomain.EVENT_TIME)
            for call in instance.operator.calls:
                inputs[call.target].append(now)
        return {number: instance.time.watermark for number, instance in self.instances.items()}

    def turn_to(self, number: int, batch: SplitRecords) -> None:
        """Switch a source to the split of a batch; records put aside go to side outputs."""
        instance = self.instances[number]
        if isinstance(instance.time, StampingTime):
            instance.time.turn_to(batch.split)
        if batch.aside:
            instance.emit([((tag, record), stamp) for tag, record, stamp in batch.aside])

    def keep_splits(self, number: int, splits: Collection[Hashable]) -> None:
        """Set the current splits of a source; its watermark waits for each of them."""
        time = self.instances[number].time
        if isinstance(time, StampingTime):
            time.keep_splits(splits)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """Return the users' metrics, by operator uid."""
        taken = {
            instance.operator.uid: instance.context.get_metrics_group().snapshot()
            for instance in self.instances.values()
        }
        return {uid: metrics for uid, metrics in taken.items() if metrics}

    def written(self) -> dict[str, int]:
        """Return the number of records that each sink accepted since the last call, by uid."""
        return {uid: accepted.drain() for uid, accepted in self._sinks.items()}

    def close(self) -> None:
        """Close all functions, in the order of the stream."""
        for instance in self.instances.values():
            instance.close()

    def release(self) -> None:
        """Release the resources of the operators without calling users' functions."""
        self._loop.close()

    def _wire(self, plan: Plan, level: Level, subtask: int) -> Fused:
        steps = {number: instance.step() for number, instance in self.instances.items()}
        for number, step in steps.items():
            operator = plan.operators[number]
            step.routers = tuple(
                make_router(plan.exchanges[exchange], subtask, step.report)
                for exchange in operator.exchanges
            )
            self.routers += step.routers
        for router in self.routers:
            router.accompany(self.routers)
        reached = {(ex.target, ex.input) for ex in plan.exchanges if ex.target_level == level.index}
        reached |= {(number, 0) for number in steps if plan.operators[number].node.is_source}
        entries = {
            (number, port): port in plan.operators[number].timestamped_inputs
            for number, port in sorted(reached)
            if number in steps
        }
        later = [number for number, instance in self.instances.items() if instance.emits_later]
        return fuse(steps, entries, later)
