"""``holdfast cancel``: ends a running job, now."""

from __future__ import annotations

import click

from holdfast.cli.options import examples
from holdfast.cli.running import job_argument, server_options, the_job
from holdfast.cli.text import say


@click.command("cancel", epilog=examples("holdfast cancel orders", "holdfast cancel 1b2c3d4e"))
@job_argument
@server_options
def command(job: str, url: str | None, token: str | None) -> None:
    """End a running job.

    JOB is its id, its name, or a unique prefix of one. 'holdfast stop' ends it with a savepoint.
    """
    found = the_job(job, url, token)
    found.ask("?mode=cancel", "PATCH")
    say(f"cancelling {found.name} ({found.id})")
