"""``holdfast stop``: ends a running job with a savepoint."""

from __future__ import annotations

import json

import click

from holdfast.cli.options import examples, json_option
from holdfast.cli.running import job_argument, server_options, the_job


@click.command(
    "stop",
    epilog=examples(
        "holdfast stop orders", "holdfast stop --drain -p s3a://bucket/savepoints orders"
    ),
)
@job_argument
@click.option(
    "-p",
    "--savepoint-path",
    "directory",
    metavar="DIR",
    help="Where the savepoint goes; the default is in the configuration.",
)
@click.option("-d", "--drain", is_flag=True, help="First let all windows and timers fire.")
@json_option
@server_options
def command(
    job: str, directory: str | None, drain: bool, as_json: bool, url: str | None, token: str | None
) -> None:
    """End a running job with a savepoint.

    The command waits for the savepoint. JOB is its id, its name, or a unique prefix of one.
    """
    found = the_job(job, url, token)
    result = found.do("/stop", "/savepoints", {"targetDirectory": directory, "drain": drain})
    click.echo(json.dumps(result) if as_json else result["location"])
