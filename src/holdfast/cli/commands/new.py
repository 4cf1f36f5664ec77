"""``holdfast new``: a new job with tests."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Final

import click

from holdfast.cli.options import examples

_SKELETON: Final = Path(__file__).parents[1] / "skeleton"
_SUFFIX: Final = ".template"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@click.command("new", epilog=examples("holdfast new word-count", "holdfast run word-count/job.py"))
@click.argument("directory", metavar="NAME", type=click.Path(path_type=Path))
def command(directory: Path) -> None:
    """Create a new job with tests.

    NAME is a new directory; the last part of its path is the name of the job.
    """
    name = directory.name
    if not _NAME.fullmatch(name):
        message = f"a name has letters, digits, - and _, and begins with a letter; got {name!r}"
        raise click.BadParameter(message)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        message = f"'{directory}' is there, and not empty; choose another name"
        raise click.ClickException(message)
    try:
        _write(directory, name)
    except OSError as error:
        message = f"cannot write '{error.filename}': {error.strerror}; choose another place"
        raise click.ClickException(message) from error
    click.echo(f"made {directory}; now:")
    click.echo(f"  holdfast run {directory / 'job.py'}")
    click.echo(f"  python -m pytest {directory}")


def _write(directory: Path, name: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for template in sorted(_SKELETON.glob(f"*{_SUFFIX}")):
        text = Template(template.read_text()).substitute(name=name)
        (directory / template.name.removesuffix(_SUFFIX)).write_text(text)
