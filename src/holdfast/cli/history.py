"""``holdfast history``: the web page and the API, of jobs that have ended."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import click

from holdfast.cli.options import examples, json_option
from holdfast.rest.options import RestOptions
from holdfast.rest.serving import RestServer
from holdfast.rest.site import Files
from holdfast.rest.views import jobs_overview

__all__ = ["command"]


@click.command(
    "history",
    epilog=examples(
        "holdfast history checkpoints",
        "holdfast history --json checkpoints/orders | jq '.jobs[].state'",
    ),
)
@click.argument(
    "directories",
    metavar="DIR...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option("--port", type=click.IntRange(0, 65535), help="8082 unless given; 0 for any.")
@json_option
def command(directories: tuple[Path, ...], port: int | None, as_json: bool) -> None:
    """Show jobs that have ended.

    Serves the web page and the API; Ctrl-C ends it. DIR is a checkpoint directory, or that of a
    job in one. Jobs keep their history there.
    """
    site = Files(directories)
    if as_json:
        click.echo(json.dumps(_plain(site), indent=2))
        return
    server = RestServer(site, RestOptions(port=8082 if port is None else port))
    server.start()
    click.echo(f"{len(site.jobs())} jobs at {server.url}/")
    try:
        threading.Event().wait()
    finally:
        server.close()


def _plain(site: Files) -> object:
    import msgspec

    return msgspec.to_builtins(jobs_overview(site))
