"""``holdfast savepoint``: what can be done to a savepoint."""

from __future__ import annotations

from collections.abc import Mapping

import click

from holdfast.checkpoint.savepoints import dispose_savepoint
from holdfast.cli.images import located, metadata_of
from holdfast.cli.options import examples, properties_option

__all__ = ["command"]


@click.group("savepoint")
def command() -> None:
    """Dispose of savepoints.

    'holdfast checkpoints' lists, shows and verifies them.
    """


@command.command(
    "dispose", epilog=examples("holdfast savepoint dispose savepoints/savepoint-orders-7-1b2c3d4e")
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@properties_option
def dispose(paths: tuple[str, ...], properties: Mapping[str, str]) -> None:
    """Delete savepoints, with their state files.

    A checkpoint of a job is refused: that is for the job to discard.
    """
    for path in paths:
        where, _ = metadata_of(*located(path, properties))
        dispose_savepoint(where)
        click.echo(f"disposed of {where}")
