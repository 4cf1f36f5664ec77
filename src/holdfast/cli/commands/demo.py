"""``holdfast demo``: the order system of the examples, with failures and a check."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

import holdfast
from holdfast.cli.options import examples

_SOURCE: Final = Path(holdfast.__file__).resolve().parents[2]
#: about a minute; checkpoints and restarts are more frequent than the program's defaults
_SETTINGS: Final = (
    *("--chaos", "--disorder", "--events", "36000", "--rate", "1000"),
    *("--duplicates", "0.05", "--lateness", "0.02", "--initial-stock", "250"),
    *("--checkpoint-interval", "2", "--restart-delay", "1"),
)


@click.command(
    "demo",
    context_settings={"ignore_unknown_options": True},
    epilog=examples("holdfast demo", "holdfast demo --events 100000 --backend hashmap"),
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Run an order system, let it fail, and check its results.

    A function fails, the job is rescaled, the driver is killed, and each output is compared with
    a batch computation over all events. A picture shows what happened. It takes about a minute,
    and needs Holdfast's source, not only the installed package. ARGUMENTS change its settings;
    'holdfast demo -- --help' lists them.
    """
    if not (_SOURCE / "examples" / "orders").is_dir():
        message = (
            "the demo is not in the installed package; get Holdfast's source, and run 'make demo' "
            "there"
        )
        raise click.ClickException(message)
    paths = [str(_SOURCE), os.environ.get("PYTHONPATH", "")]
    # NB: replaces this process, so that signals and the exit code are those of the demo
    os.execve(
        sys.executable,
        [sys.executable, "-m", "examples.orders", *_SETTINGS, *arguments],
        {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
