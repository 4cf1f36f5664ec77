"""Runs the job in this process and tells how far it is."""

import time
from collections.abc import Callable

from examples.orders.job import NAME, JobSettings, prepare
from examples.orders.progress import Progress, look
from holdfast.common import JobClient

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
    result = client.get_job_execution_result()
    while not result.done():
        tell(look(client))
        time.sleep(_INTERVAL)
    tell(look(client))
