"""``holdfast ui``: the web page of running jobs."""

from __future__ import annotations

import webbrowser

import click

from holdfast.cli.options import examples
from holdfast.cli.running import running_jobs, server_options, the_job
from holdfast.cli.text import say


@click.command("ui", epilog=examples("holdfast ui", "holdfast ui --print orders"))
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the address; open no browser.")
@server_options
def command(job: str | None, only_print: bool, url: str | None, token: str | None) -> None:
    """Open the web UI of running jobs.

    JOB is its id, its name, or a unique prefix of one; without it, the web UI shows all jobs.
    """
    if job is not None:
        pages = [the_job(job, url, token).page]
    else:
        pages = list(dict.fromkeys(f"{one.client.url}/" for one in running_jobs(url, token)))
    if not pages:
        message = "no job runs; 'holdfast history DIR' shows those that have ended"
        raise click.ClickException(message)
    for page in pages:
        say(page)
        if not only_print:
            webbrowser.open(page)
