"""Starts a job on an engine: with its history, and with the server that shows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.common import Configuration, JobID
from holdfast.common.options.rest import RestOptions, rest_options
from holdfast.driver.client import JobRunnerClient
from holdfast.driver.engine import Engine, EngineChoice
from holdfast.driver.epochs.delivery import CollectedRecords
from holdfast.driver.job.runner import JobRunner
from holdfast.history.journal import open_journal
from holdfast.plan.model import Plan
from holdfast.rest.serving import Mount, serve


def launch(
    engine: Engine,
    plan: Plan,
    configuration: Configuration,
    directory: str | os.PathLike[str],
    scratch: Path,
    choice: EngineChoice,
    collected: Mapping[int, CollectedRecords] | None = None,
    mount: Mount | None = None,
) -> JobRunnerClient:
    """Start a plan as a job on an engine, which is closed if that fails.

    Args:
        engine: runs the job.
        plan: the job's plan.
        configuration: the environment's.
        directory: the address of the directory for data of the running job.
        scratch: the directory of the driver.
        choice: the engine, and why it was chosen.
        collected: the queues for records that the program collects, by operator.
        mount: shows the job in the web UI of the system that runs it, if the settings want that.
    """
    try:
        rest = rest_options(configuration)
        job_id = JobID.generate().to_hex_string()
        job = JobRunner(
            engine, plan, job_id, configuration, directory, collected=collected, choice=choice
        )
    except BaseException:
        engine.close()
        raise
    try:
        _publish(job, scratch, rest, mount)
        client = JobRunnerClient(job)
    except BaseException as error:
        job.give_up(error)
        raise
    job.start()
    return client


def _publish(job: JobRunner, scratch: Path, rest: RestOptions, mount: Mount | None) -> None:
    """Keep the job's history, and let others look at the job."""
    if job.checkpoints.kept:
        store = job.checkpoints.store
        place = str(store.directory)
        job.recorder.keep_in(open_journal(store.files, place, job.job_id, job.history, scratch))
    job.at_end("stop its REST server", serve(job, rest, job.recorder.page, mount))
