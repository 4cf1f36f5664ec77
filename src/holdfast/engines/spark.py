"""Starts jobs on Spark."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from holdfast.common import Configuration, JobExecutionResult
from holdfast.common.options.engine import EngineSetting, engine_setting
from holdfast.common.options.rest import SparkPage, rest_options
from holdfast.datastream.engines import needed_slots
from holdfast.datastream.execution_mode import is_batch
from holdfast.datastream.shipment import Shipment
from holdfast.datastream.streams.closeable_iterator import CloseableIterator
from holdfast.driver.client import JobRunnerClient
from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.engines.launching import launch
from holdfast.plan.model import Plan
from holdfast.printable import printable
from holdfast.spark.engine_choice import engine_for
from holdfast.spark.epochs.engine import SparkEpochs
from holdfast.spark.jvm import death_named
from holdfast.spark.promised_slots import promised_slots
from holdfast.spark.resident.engine import ResidentEngine
from holdfast.spark.session import default_parallelism, get_session, page_of, settings_of
from holdfast.spark.web_ui import show_in_spark

__all__ = ["collect_job", "default_parallelism", "run_job", "start_job"]


def start_job(
    plan: Plan,
    configuration: Configuration,
    interval_ms: int,
    shipment: Shipment,
    collected: dict[int, CollectedRecords] | None = None,
) -> JobRunnerClient:
    """Start a plan as a job."""
    settings = configuration.to_dict()
    spark_settings = {key: value for key, value in settings.items() if key.startswith("spark.")}
    rest = rest_options(configuration)  # raises if they are wrong, before Spark is started
    if rest.enabled and rest.spark_ui is not SparkPage.OFF:
        spark_settings.setdefault("spark.ui.enabled", "true")
    setting = engine_setting(configuration)
    with death_named():
        slots = 0 if setting is EngineSetting.EPOCHS else needed_slots(plan)
        session = get_session(printable(plan.name), spark_settings, slots)
        with promised_slots.lock:
            choice = engine_for(session, setting, is_batch(configuration), plan)
            choice = replace(choice, settings=settings_of(session), page=page_of(session))
            kind = SparkEpochs if choice.name == "epochs" else ResidentEngine
            engine = kind(session, configuration, interval_ms, shipment)
            if choice.name == "resident":
                promised_slots.promise(engine, slots)
        return launch(
            engine,
            plan,
            configuration,
            engine.directory,
            engine.scratch,
            choice,
            collected,
            partial(show_in_spark, session),
        )


def run_job(
    plan: Plan, configuration: Configuration, interval_ms: int, shipment: Shipment
) -> JobExecutionResult:
    """Run a plan as a job, until it ends."""
    client = start_job(plan, configuration, interval_ms, shipment)
    try:
        return client.get_job_execution_result().result()
    except KeyboardInterrupt:
        client.cancel().result()
        raise


def collect_job(
    plan: Plan, configuration: Configuration, interval_ms: int, shipment: Shipment, node: int
) -> CloseableIterator:
    """Start a plan and iterate over the records of one of its result operators."""
    records = CollectedRecords()
    client = start_job(plan, configuration, interval_ms, shipment, {node: records})

    def close() -> None:
        records.close()
        client.cancel().result()

    return CloseableIterator(iter(records), close, client.cancel)
