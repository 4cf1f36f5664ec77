"""``holdfast history``: the web UI and the API of finished jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from holdfast.cli.images import located
from holdfast.cli.options import examples, json_option, properties_option
from holdfast.cli.text import say
from holdfast.common import Configuration
from holdfast.common.leftovers import OwnDirectory
from holdfast.common.options.rest import RestOptions, rest_options
from holdfast.common.private import user_directory
from holdfast.filesystem import FileSystem, join
from holdfast.filesystem.local import LocalFileSystem
from holdfast.history.journal import SUFFIX
from holdfast.printable import counted
from holdfast.rest.serving import RestServer
from holdfast.rest.site import Files
from holdfast.rest.views.jobs import jobs_overview

_PORT: Final = "8082"


@click.command(
    "history",
    epilog=examples(
        "holdfast history checkpoints",
        "holdfast history s3a://bucket/checkpoints",
        "holdfast history --json checkpoints/orders | jq '.jobs[].state'",
    ),
)
@click.argument("directories", metavar="DIR...", nargs=-1, required=True)
@click.option("--port", type=click.IntRange(0, 65535), help="The default is 8082; 0 for any.")
@json_option
@properties_option
def command(
    directories: tuple[str, ...], port: int | None, as_json: bool, properties: Mapping[str, str]
) -> None:
    """Show finished jobs.

    Serves the web UI and the REST API; Ctrl-C ends it. DIR is a checkpoint directory, or that of a
    job, where the histories are.
    """
    with OwnDirectory(user_directory(), "history") as scratch:
        places = [
            _local(one, properties, scratch / str(number)) for number, one in enumerate(directories)
        ]
        _show(Files(places), _options(port, properties), as_json)


def _options(port: int | None, properties: Mapping[str, str]) -> RestOptions:
    """Return the settings ``rest.*`` of ``-D``; ``--port`` takes precedence."""
    settings = {"rest.port": _PORT, **properties}
    if port is not None:
        settings["rest.port"] = str(port)
    return rest_options(Configuration(settings))


def _show(site: Files, options: RestOptions, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(jobs_overview(site)), indent=2))
        return
    server = RestServer(site, options)
    server.start()
    say(f"{counted(len(site.jobs()), 'job')} at {server.url}/")
    try:
        threading.Event().wait()
    finally:
        server.close()


def _local(address: str, properties: Mapping[str, str], copies: Path) -> Path:
    """Return a local directory itself, or a copy of the histories in a remote one."""
    files, path = located(address, properties)
    status = files.status(path)
    if status is None or not status.is_directory:
        raise click.ClickException(f"there is no directory '{files.uri(path)}'")
    if isinstance(files, LocalFileSystem):
        return Path(path)
    copies.mkdir()
    for place in [path, *_directories(files, path)]:
        for home in (place, join(place, "history")):
            for found in files.list_directory(home):
                if found.name.endswith(SUFFIX):
                    (copies / found.name).write_bytes(files.read(join(home, found.name)))
    return copies


def _directories(files: FileSystem, path: str) -> list[str]:
    return [join(path, found.name) for found in files.list_directory(path) if found.is_directory]
