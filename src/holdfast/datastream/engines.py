"""The choice of a program's engine as far as the program determines it, and the job launcher.

The setting ``holdfast.engine`` has three engines: *resident*, whose subtasks stay in task slots of
Spark from the start of an attempt to its end, *epochs*, which runs a Spark job per epoch, and
*local*, which runs everything in the process of the program, without Spark.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Protocol, cast

import holdfast
from holdfast.common import JobClient, JobExecutionResult
from holdfast.common.configuration import Configuration
from holdfast.common.options.engine import ENGINE, EngineSetting, engine_setting
from holdfast.datastream.execution_mode import is_batch
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.streams.closeable_iterator import CloseableIterator
from holdfast.errors import JobDefinitionError
from holdfast.graph.operations import WriterOperation
from holdfast.plan.model import Plan
from holdfast.printable import counted

__all__ = [
    "LOCAL_PARALLELISM",
    "Launcher",
    "check_local",
    "default_parallelism",
    "engine_note",
    "launcher",
    "needed_slots",
    "not_for_local",
    "not_for_resident",
    "starts_spark",
    "why_epochs",
]

#: the default parallelism of the local engine, whose subtasks run one after another
LOCAL_PARALLELISM: Final = 1


class Launcher(Protocol):
    """Starts the jobs of programs; implemented by a module of `holdfast.engines`."""

    def default_parallelism(self) -> int:
        """Return the number of cores that are available to a job."""

    def start_job(
        self, plan: Plan, configuration: Configuration, interval_ms: int, shipment: Shipment
    ) -> JobClient:
        """Start a plan as a job."""

    def run_job(
        self, plan: Plan, configuration: Configuration, interval_ms: int, shipment: Shipment
    ) -> JobExecutionResult:
        """Run a plan as a job, until it ends. An interrupt cancels it."""

    def collect_job(
        self,
        plan: Plan,
        configuration: Configuration,
        interval_ms: int,
        shipment: Shipment,
        node: int,
    ) -> CloseableIterator:
        """Start a plan and iterate over the records of one of its result operators."""


def launcher(configuration: Configuration) -> Launcher:
    """Return the launcher of the engine that is set, a module of `holdfast.engines`.

    It is found at run time, because that package is in a layer above this one.

    Raises:
        JobDefinitionError: if there is none.
    """
    return _launcher("local" if _is_local(configuration) else "spark")


def _is_local(configuration: Configuration) -> bool:
    return engine_setting(configuration) is EngineSetting.LOCAL


@cache
def _launcher(name: str) -> Launcher:
    module = f"holdfast.engines.{name}"
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # the package is missing
        found = None
    if found is None:
        raise JobDefinitionError(
            f"there is no {module} in {', '.join(holdfast.__path__)}: this copy of Holdfast is not "
            "complete; install it again"
        )
    return cast(Launcher, import_module(module))


def default_parallelism(configuration: Configuration) -> int:
    """Return the number of cores that are available to a job; 1 for the local engine."""
    if _is_local(configuration):
        return LOCAL_PARALLELISM
    # NB: a program that has not loaded pyspark has no session that could be asked, and the launcher
    # loads everything that starts a job: too much for a program that only builds or shows a plan
    if "pyspark" not in sys.modules:
        return os.cpu_count() or 1
    return launcher(configuration).default_parallelism()


def starts_spark(configuration: Configuration) -> bool:
    """Return whether a job that is started now has to start Spark first, which takes seconds."""
    if _is_local(configuration):
        return False
    # NB: see above; loading pyspark takes a part of this time
    pyspark = sys.modules.get("pyspark")
    return pyspark is None or pyspark.SparkContext._active_spark_context is None


def needed_slots(plan: Plan) -> int:
    """Return how many task slots the resident engine needs; slot k runs subtask k of each operator.

    With DataFrame sinks Spark needs one more slot, because it writes their rows at the same time.
    """
    return plan.widest_level.parallelism + int(writes_rows(plan))


def writes_rows(plan: Plan) -> bool:
    """Return whether there is a DataFrame sink."""
    return any(isinstance(op.node.operation, WriterOperation) for op in plan.operators.values())


def not_for_resident(plan: Plan) -> str | None:
    """Return why a job cannot run on the resident engine; None if it can."""
    if not plan.rows_sources:
        return None
    names = ", ".join(f"'{op.name}'" for op in plan.rows_sources)
    return f"it reads the rows of a Spark DataFrame ({names}), which arrive in micro-batches"


def not_for_local(plan: Plan) -> str | None:
    """Return why a job cannot run on the local engine; None if it can."""
    reads = [op.name for op in plan.rows_sources]
    writes = [
        op.name for op in plan.operators.values() if isinstance(op.node.operation, WriterOperation)
    ]
    if not (reads or writes):
        return None
    names = ", ".join(f"'{name}'" for name in [*reads, *writes])
    does = " and ".join(["reads"] * bool(reads) + ["writes"] * bool(writes))
    return f"it {does} a Spark DataFrame ({names})"


def check_local(plan: Plan) -> None:
    """Check that a job can run without Spark.

    Raises:
        JobDefinitionError: if it cannot.
    """
    refused = not_for_local(plan)
    if refused is not None:
        raise JobDefinitionError(
            f"job '{plan.name}' cannot run on the local engine, which has no Spark: {refused}; run "
            f"it without --local, set '{ENGINE}' to auto, or replace the DataFrame, for "
            "example with from_collection and print"
        )


def why_epochs(plan: Plan, batch: bool) -> str | None:
    """Return why a job with automatic choice runs in epochs; None if that is not decided yet."""
    return not_for_resident(plan) or ("it runs in batch mode" if batch else None)


def engine_note(plan: Plan, configuration: Configuration) -> str:
    """Return a text about a job's engine, as far as it is known without a Spark session."""
    setting, slots = engine_setting(configuration), counted(needed_slots(plan), "task slot")
    asked = f"as set by '{ENGINE}'"
    if setting is EngineSetting.EPOCHS:
        return f"epochs, {asked}"
    if setting is EngineSetting.LOCAL:
        refused = not_for_local(plan)
        told = f"the job cannot start: {refused}" if refused else "in this process, without Spark"
        return f"local, {asked}: {told}"
    if setting is EngineSetting.RESIDENT:
        refused = not_for_resident(plan)
        return f"resident, {asked}: " + (f"the job cannot start: {refused}" if refused else slots)
    reason = why_epochs(plan, is_batch(configuration))
    return f"epochs: {reason}" if reason else f"resident, if the session has {slots} free"
