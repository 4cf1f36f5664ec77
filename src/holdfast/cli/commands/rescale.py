"""``holdfast rescale``: another parallelism for a running job."""

from __future__ import annotations

import json

import click

from holdfast.cli.options import examples, json_option
from holdfast.cli.running import job_argument, server_options, the_job
from holdfast.cli.text import say


@click.command("rescale", epilog=examples("holdfast rescale orders 8"))
@job_argument
@click.argument("parallelism", type=click.IntRange(1, 32768))
@json_option
@server_options
def command(job: str, parallelism: int, as_json: bool, url: str | None, token: str | None) -> None:
    """Give a running job another parallelism.

    JOB is its id, its name, or a unique prefix of one. The job takes a checkpoint, and continues
    from there. The command waits for it. Operators keep a parallelism that the program sets.
    """
    found = the_job(job, url, token)
    path = f"/rescaling?parallelism={parallelism}"
    result = found.do(path, "/rescaling", method="PATCH")
    if as_json:
        click.echo(json.dumps(result))
    else:
        widths = result["parallelism"]
        for vertex in found.ask()["vertices"]:
            say(f"{widths.get(vertex['id'], vertex['parallelism'])}  {vertex['name']}")
