"""``holdfast list``: the running jobs."""

from __future__ import annotations

import json

import click

from holdfast.cli.options import examples, json_option
from holdfast.cli.running import duration_of, running_jobs, server_options
from holdfast.cli.text import say, table, time_of


@click.command("list", epilog=examples("holdfast list", "holdfast list --json | jq -r '.[].jid'"))
@json_option
@server_options
def command(as_json: bool, url: str | None, token: str | None) -> None:
    """List running jobs.

    Those of this user on this machine, unless --url names a server.
    """
    jobs = running_jobs(url, token)
    if as_json:
        click.echo(json.dumps([{**job.summary, "url": job.client.url} for job in jobs], indent=2))
        return
    if not jobs:
        say("no job runs", err=True)
        return
    rows = [
        (
            job.id,
            job.name,
            job.summary["state"],
            time_of(job.summary["start-time"]),
            duration_of(job.summary["duration"]),
            job.summary["tasks"]["total"],
            job.page,
        )
        for job in jobs
    ]
    for line in table(("ID", "NAME", "STATE", "STARTED", "FOR", "SUBTASKS", "PAGE"), rows):
        say(line)
