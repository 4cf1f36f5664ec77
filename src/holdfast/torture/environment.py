"""The environment of a program that is tortured: the same job, with its outputs in the run."""

from __future__ import annotations

import sys
from typing import ClassVar

from holdfast.common import Configuration, RestartStrategies
from holdfast.common.options.engine import DIRECTORY, FAULTS, HEARTBEAT
from holdfast.common.options.recovery import RESTORE_PATH
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.base import Source
from holdfast.datastream.connectors.function import FunctionSource
from holdfast.graph.nodes import Node
from holdfast.graph.operations import ResultKind, ResultOperation, SourceOperation
from holdfast.plan.model import Plan
from holdfast.torture.bounding import bounded, first_records
from holdfast.torture.order import JobNote, Order, SinkPlace, write_note
from holdfast.torture.paced_functions import paced_function
from holdfast.torture.paced_sources import paced
from holdfast.torture.redirecting import redirected

__all__ = ["TorturedEnvironment", "environment_for"]

#: a job under torture never gives up by itself
_ATTEMPTS = sys.maxsize >> 32


class TorturedEnvironment(StreamExecutionEnvironment):
    """Redirects sinks, slows sources down, and has settings that a program cannot change.

    Attributes:
        order: the run.
    """

    order: ClassVar[Order]
    #: how many jobs the program has started
    _jobs: ClassVar[int] = 0

    def __init__(self, configuration: Configuration | None = None) -> None:
        """Start with the settings of the program."""
        super().__init__(configuration)
        self._rewritten: set[int] = set()

    def _take_plan(self, job_name: str | None) -> Plan:
        """Rewrite what the program built since the last execution, and plan it."""
        kind = type(self)
        kind._jobs += 1
        number = kind._jobs
        self._set_places()
        if self.order.disturbed:
            self._set_pressure()
        sinks, unheld = self._rewrite(number)
        plan = super()._take_plan(job_name)
        note = JobNote(plan.name, plan.widest_level.parallelism, tuple(sinks), tuple(unheld))
        write_note(self.order.path, number, note)
        return plan

    # Settings

    def _set_places(self) -> None:
        """Keep checkpoints, savepoints and the job's own files in the directory of the run."""
        run = self.order.path
        # NB: processes of source functions are found by it
        DIRECTORY.put(self._configuration, str(run / "job"))
        config = self.get_checkpoint_config()
        config.set_checkpoint_storage_dir((run / "checkpoints").as_uri())
        self.set_default_savepoint_directory(str(run / "savepoints"))
        taken = run / "savepoint"
        if taken.exists():
            RESTORE_PATH.put(self._configuration, taken.read_text())
        self._configuration.set_boolean("rest.enabled", self.order.disturbed)

    def _set_pressure(self) -> None:
        """Take checkpoints often, and never give up."""
        order, config = self.order, self.get_checkpoint_config()
        own = config.get_checkpoint_interval()
        fits = config.is_checkpointing_enabled() and own < order.interval_ms
        config.set_checkpoint_interval(own if fits else order.interval_ms)
        config.set_min_pause_between_checkpoints(0)
        config.set_tolerable_checkpoint_failure_number(_ATTEMPTS)
        self.set_restart_strategy(RestartStrategies.fixed_delay_restart(_ATTEMPTS, 100))
        HEARTBEAT.put(self._configuration, f"{order.heartbeat_ms} ms")
        FAULTS.put(self._configuration, str(order.path / "faults"))
        for key, value in (("rest.port", "0"), ("rest.address", "127.0.0.1")):
            self._configuration.set_string(key, value)

    # The graph

    def _rewrite(self, job: int) -> tuple[list[SinkPlace], list[str]]:
        sinks: list[SinkPlace] = []
        unheld: list[str] = []
        for node in self._graph.pending():
            name = f"{job}-{node.id}"
            if node.id in self._rewritten:
                continue
            self._rewritten.add(node.id)
            if isinstance(node.operation, SourceOperation):
                if not self._slow_down(node, node.operation, name):
                    unheld.append(node.name)
            else:
                sinks += self._redirect(node, name)
        return sinks, unheld

    def _slow_down(self, node: Node, operation: SourceOperation, name: str) -> bool:
        """Pace a source; return False if Spark reads it."""
        source, run = operation.source, self.order.directory
        if source.reads_rows:
            return False
        if isinstance(source, FunctionSource):
            first = first_records(self.order, name)
            held: Source = FunctionSource(paced_function(source.function, run, name, first))
            if first is not None and source.parallelism_limit is None:
                # NB: with another number of subtasks, the first records of each would be others
                fixed = node.parallelism or self.get_parallelism()
                self._graph.update(node.id, parallelism=fixed)
        else:
            ending, first = bounded(source, self.order, name)
            held = paced(ending, run, name, first)
        self._graph.update(node.id, operation=SourceOperation(held, operation.strategy))
        return True

    def _redirect(self, node: Node, name: str) -> list[SinkPlace]:
        operation = node.operation
        if isinstance(operation, ResultOperation) and operation.kind is ResultKind.COLLECT:
            # NB: what the program has in memory dies with it, so the records are printed as well
            operation = ResultOperation(ResultKind.PRINT)
            copy = self._graph.add(
                "print", node.name, operation, node.inputs, parallelism=node.parallelism
            )
            self._rewritten.add(copy)
            node = self._graph[copy]
        changed, place = redirected(node, self.order, name)
        if changed is not node.operation:
            self._graph.update(node.id, operation=changed)
        return [] if place is None else [place]


def environment_for(order: Order) -> type[TorturedEnvironment]:
    """Return the environment of one run."""
    return type("TorturedEnvironment", (TorturedEnvironment,), {"order": order})
