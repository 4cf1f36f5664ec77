"""Runs the job in this process and tells how far it is."""

import os
import time
from collections.abc import Callable

from examples.orders.job import NAME, JobSettings, prepare
from examples.orders.progress import Progress, look
from holdfast.common import JobClient
from holdfast.rest.registry import registered

__all__ = ["run"]

_INTERVAL = 0.25


def run(settings: JobSettings, tell: Callable[[Progress], None]) -> None:
    """Run the job to its end.

    Ctrl-C cancels it, and leaves its checkpoints: the same command goes on from the last one.
    """
    client = prepare(settings).execute_async(NAME)
    try:
        _watch(client, tell)
    except BaseException:
        client.cancel().result()
        raise
    client.get_job_execution_result().result()


def _watch(client: JobClient, tell: Callable[[Progress], None]) -> None:
    result, page = client.get_job_execution_result(), _page(client)
    while not result.done():
        tell(look(client, page))
        time.sleep(_INTERVAL)
    tell(look(client, page))


def _page(client: JobClient) -> str:
    """The address of the job's page; empty if it has none."""
    own = (entry.url for entry in registered() if entry.process == os.getpid())
    return next((f"{url}/#/jobs/{client.get_job_id()}" for url in own), "")
