"""``holdfast savepoint``: takes or deletes a savepoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import click

from holdfast.checkpoint.savepoints import dispose_savepoint
from holdfast.cli.images import located, metadata_of
from holdfast.cli.options import examples, json_option, properties_option
from holdfast.cli.running import job_argument, server_options, the_job
from holdfast.cli.text import say

_TAKE: Final = "take"


class _TakeUnlessTold(click.Group):
    """``savepoint JOB`` is short for ``savepoint take JOB``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args[0] in self.commands else [_TAKE, *args])


@click.group("savepoint", cls=_TakeUnlessTold)
def command() -> None:
    """Take a savepoint of a running job, or delete one.

    'holdfast savepoint JOB [DIR]' is short for 'holdfast savepoint take JOB [DIR]'. 'holdfast
    checkpoints' lists, shows and verifies savepoints.
    """


@command.command(
    _TAKE,
    epilog=examples(
        "holdfast savepoint orders", "holdfast savepoint orders s3a://bucket/savepoints"
    ),
)
@job_argument
@click.argument("directory", metavar="[DIR]", required=False)
@json_option
@server_options
def take(
    job: str, directory: str | None, as_json: bool, url: str | None, token: str | None
) -> None:
    """Take a savepoint of a running job, and wait for it.

    The job continues. JOB is its id, its name, or a unique prefix of one. DIR is where the
    savepoint goes; the default is in the job's configuration.
    """
    found = the_job(job, url, token)
    result = found.do("/savepoints", "/savepoints", {"target-directory": directory})
    click.echo(json.dumps(result) if as_json else result["location"])


@command.command(
    "dispose", epilog=examples("holdfast savepoint dispose savepoints/savepoint-orders-7-1b2c3d4e")
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@properties_option
def dispose(paths: tuple[str, ...], properties: Mapping[str, str]) -> None:
    """Delete savepoints, with their state files.

    A checkpoint of a job is rejected, because the job deletes it.
    """
    for path in paths:
        where, _ = metadata_of(*located(path, properties))
        dispose_savepoint(where)
        say(f"disposed of {where}")
