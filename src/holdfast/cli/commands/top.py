"""``holdfast top``: a running job, live in the terminal."""

from __future__ import annotations

import itertools
import time

import click

from holdfast.cli.options import examples
from holdfast.cli.report import described
from holdfast.cli.running import job_argument, server_options, the_job
from holdfast.cli.text import say


@click.command("top", epilog=examples("holdfast top orders", "holdfast top -n 1 orders"))
@job_argument
@click.option(
    "-i", "--interval", type=click.FloatRange(min=0.2), default=1.0, help="Seconds between looks."
)
@click.option(
    "-n", "--looks", type=click.IntRange(min=1), help="The number of updates; by default no limit."
)
@server_options
def command(
    job: str, interval: float, looks: int | None, url: str | None, token: str | None
) -> None:
    """Show a running job, live.

    JOB is its id, its name, or a unique prefix of one. Ctrl-C ends it.
    """
    found = the_job(job, url, token)
    for look in itertools.count(1):
        lines = list(described(found.ask(), found.ask("/checkpoints"), found.ask("/exceptions")))
        click.clear()
        for line in lines:
            say(line)
        if look == looks:
            return
        time.sleep(interval)
