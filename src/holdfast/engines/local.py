"""Starts jobs in the process of the program, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.common import Configuration, JobExecutionResult
from holdfast.common.options.engine import ENGINE
from holdfast.datastream.engines import LOCAL_PARALLELISM, check_local
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.streams.closeable_iterator import CloseableIterator
from holdfast.driver.client import JobRunnerClient
from holdfast.driver.engine import EngineChoice
from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.engines.launching import launch
from holdfast.local.engine import LocalEngine
from holdfast.local.function_thread import FunctionThread
from holdfast.plan.model import Plan

__all__ = ["collect_job", "default_parallelism", "run_job", "start_job"]


def default_parallelism() -> int:
    """Return 1: subtasks run one after another, so that more of them are not faster."""
    return LOCAL_PARALLELISM


def start_job(
    plan: Plan,
    configuration: Configuration,
    interval_ms: int,
    shipment: Shipment,
    collected: dict[int, CollectedRecords] | None = None,
    functions: FunctionThread | None = None,
) -> JobRunnerClient:
    """Start a plan as a job; ``functions``: the thread of its functions, by default the job's."""
    check_local(plan)
    engine = LocalEngine(configuration, interval_ms, shipment, functions)
    choice = EngineChoice("local", f"'{ENGINE}' says so")
    return launch(engine, plan, configuration, engine.scratch, engine.scratch, choice, collected)


def run_job(
    plan: Plan, configuration: Configuration, interval_ms: int, shipment: Shipment
) -> JobExecutionResult:
    """Run a plan as a job, with its functions in the current thread, until it ends."""
    thread = FunctionThread()
    client = start_job(plan, configuration, interval_ms, shipment, functions=thread)
    _work_to_end(thread, client)
    return client.get_job_execution_result().result()


def _work_to_end(thread: FunctionThread, client: JobRunnerClient) -> None:
    end = client.get_job_execution_result()
    end.add_done_callback(lambda _: thread.wake())
    thread.work(end.done, client.cancel)


def collect_job(
    plan: Plan, configuration: Configuration, interval_ms: int, shipment: Shipment, node: int
) -> CloseableIterator:
    """Start a plan and iterate over the records of one of its result operators.

    Its functions run in the current thread, while the program waits for the next record.
    """
    thread = FunctionThread()
    collected = CollectedRecords(told=thread.wake)
    client = start_job(plan, configuration, interval_ms, shipment, {node: collected}, thread)

    def close() -> None:
        collected.close()
        client.cancel()
        _work_to_end(thread, client)

    def records() -> Iterator[Any]:
        while True:
            try:
                thread.work(lambda: collected.is_ready, client.cancel)
            except KeyboardInterrupt:
                close()
                raise
            block = collected.take()
            if block is None:
                return
            try:
                yield from block
            except GeneratorExit:
                thread.leave()  # nobody will work here; the job ends in its own thread
                raise

    return CloseableIterator(records(), close, client.cancel)
