"""``holdfast torture``: proves that a job recovers from faults."""

from __future__ import annotations

import runpy
import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.options import JOB_VERB, examples, job_options, settings_of
from holdfast.torture.faults import KINDS, FaultKind, kinds_named
from holdfast.torture.order import Order
from holdfast.torture.program import child_command
from holdfast.torture.reading import ContentsReader
from holdfast.torture.report import write_report
from holdfast.torture.settings import TortureError, TortureSettings
from holdfast.torture.trial import torture

#: what runs the program
_CHILD: Final = "holdfast.cli.tortured"
_COULD_NOT_RUN: Final = 2


def _kinds(_: click.Context, __: click.Parameter, given: str | None) -> tuple[FaultKind, ...]:
    try:
        return kinds_named([name.strip() for name in given.split(",")] if given else ())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _contents(given: str | None) -> ContentsReader | None:
    """Find a function: ``FILE.py:NAME`` or ``MODULE:NAME``."""
    if given is None:
        return None
    place, _, name = given.rpartition(":")
    try:
        found: Mapping[str, Any]
        found = runpy.run_path(place) if place.endswith(".py") else vars(import_module(place))
        return found[name]  # type: ignore[no-any-return]
    except (OSError, ImportError, KeyError, ValueError) as error:
        message = (
            f"--contents: expected FILE.py:FUNCTION or MODULE:FUNCTION; got {given!r} "
            f"({type(error).__name__}: {error})"
        )
        raise click.UsageError(message) from error


def _repeat(arguments: Sequence[str]) -> str:
    """Return the command line for another time; its report goes elsewhere."""
    given = list(arguments)
    if "--report" in given:
        place = given.index("--report")
        del given[place : place + 2]
    return shlex.join(["holdfast", *given])


def _list_kinds(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        for kind in KINDS:
            limit = f" ({kind.limit})" if kind.limit else ""
            click.echo(f"{kind.name:14} {kind.summary}{limit}")
        context.exit()


@click.command(
    "torture",
    context_settings=JOB_VERB,
    epilog=examples(
        "holdfast torture job.py",
        "holdfast torture --faults 100 --seed 7 job.py --output {run}",
        "holdfast torture --only kill-worker,cut --engine epochs job.py",
        "holdfast torture --records 10000 -p 4 kafka_job.py",
        "holdfast torture --list",
    ),
)
@click.option(
    "--faults", type=click.IntRange(min=1), default=20, show_default=True, help="How many."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Determines the faults.")
@click.option(
    "--only",
    "kinds",
    callback=_kinds,
    metavar="KINDS",
    help="Kinds of faults, separated by commas.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_kinds,
    help="List the kinds of faults.",
)
@click.option(
    "--records",
    type=click.IntRange(min=0),
    default=0,
    help="Read only the first records of each source, so many; for sources without an end.",
)
@click.option(
    "--calm",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many undisturbed runs; with 1, a job that is not deterministic is not noticed.",
)
@click.option(
    "--report",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A new directory for the report and the runs; the default is torture-TIME.",
)
@click.option(
    "--contents",
    metavar="FILE.py:FUNCTION",
    help="A function that gets {run} and returns what the job wrote.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="SINK",
    help="The name of a sink that is not compared; can be repeated.",
)
@click.option(
    "--shrink",
    type=click.IntRange(min=0),
    default=0,
    metavar="RUNS",
    help="After a difference, look in up to so many runs for fewer faults that are enough.",
)
@click.option(
    "--interval",
    type=click.IntRange(min=10),
    default=300,
    show_default=True,
    metavar="MS",
    help="The longest interval of checkpoints.",
)
@click.option(
    "--patience",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long a recovery may take.",
)
@job_options
def command(
    script: str,
    is_module: bool,
    arguments: tuple[str, ...],
    properties: Mapping[str, str],
    faults: int,
    seed: int,
    kinds: tuple[FaultKind, ...],
    records: int,
    calm: int,
    directory: Path | None,
    contents: str | None,
    ignored: tuple[str, ...],
    shrink: int,
    interval: int,
    patience: float,
    **options: object,
) -> None:
    """Prove that a job recovers from faults.

    The program runs undisturbed, and again while its processes are killed and stopped, connections
    are cut, the checkpoint storage fails, and its parallelism changes. Then the contents of its
    sinks are compared. Sinks are redirected to places of their own; {run} in the arguments stands
    for a directory of the run, and everything that the program writes there is compared, too.

    The exit code is 0 if nothing differs, 1 if something does, 2 if the job cannot be tortured.
    """
    place = (directory or Path(time.strftime("torture-%Y%m%d-%H%M%S"))).resolve()
    order = Order(
        directory=str(place),
        shared=str(place / "shared"),
        # topics and tables are named after it: two commands of the same second must not share them
        name=f"torture-{secrets.token_hex(4)}",
        program=script,
        arguments=arguments,
        is_module=is_module,
        settings=settings_of(properties, **options),
        interval_ms=interval,
        records=records,
    )
    settings = TortureSettings(
        order,
        child_command(_CHILD),
        faults,
        seed,
        kinds,
        calm,
        patience,
        _contents(contents),
        frozenset(ignored),
        _repeat(sys.argv[1:]),
        shrink,
        lambda line: click.echo(line, err=True),
    )
    sys.exit(_tortured(settings, place))


def _tortured(settings: TortureSettings, place: Path) -> int:
    """Run it, write the report, and return the exit code."""
    try:
        report = torture(settings)
    except TortureError as error:
        click.echo(f"Error: {error}", err=True)
        return _COULD_NOT_RUN
    _, page = write_report(report, place)
    for line in report.lines():
        click.echo(line)
    click.echo(f"report: {page}")
    return 1 if report.findings else 0 if report.is_complete else _COULD_NOT_RUN
