"""``holdfast checkpoint``: a checkpoint of a running job, now."""

from __future__ import annotations

import json

import click

from holdfast.cli.options import examples, json_option
from holdfast.cli.running import job_argument, server_options, the_job


@click.command("checkpoint", epilog=examples("holdfast checkpoint orders"))
@job_argument
@json_option
@server_options
def command(job: str, as_json: bool, url: str | None, token: str | None) -> None:
    """Take a checkpoint of a running job.

    The command waits for it. JOB is its id, its name, or a unique prefix of one. 'holdfast
    checkpoints' inspects checkpoints.
    """
    found = the_job(job, url, token)
    result = found.do("/checkpoints", "/checkpoints", {})
    click.echo(json.dumps(result) if as_json else f"checkpoint {result['checkpointId']}")
