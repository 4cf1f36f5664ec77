"""``holdfast status``: what a running job does."""

from __future__ import annotations

import json

import click

from holdfast.cli.options import examples, json_option
from holdfast.cli.report import described
from holdfast.cli.running import job_argument, server_options, the_job
from holdfast.cli.text import say


@click.command("status", epilog=examples("holdfast status orders", "holdfast status --json 1b2c"))
@job_argument
@json_option
@server_options
def command(job: str, as_json: bool, url: str | None, token: str | None) -> None:
    """Show what a running job does.

    JOB is its id, its name, or a unique prefix of one.
    """
    found = the_job(job, url, token)
    parts = {
        "job": found.ask(),
        "checkpoints": found.ask("/checkpoints"),
        "exceptions": found.ask("/exceptions"),
    }
    if as_json:
        click.echo(json.dumps(parts, indent=2))
        return
    for line in described(**parts):
        say(line)
    say(found.page)
