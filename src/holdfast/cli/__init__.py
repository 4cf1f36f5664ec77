"""The command ``holdfast``.

A module for each verb, or for each group of verbs about one thing, with its ``command``. A module
is loaded when its verb is used, or helped with, so that no verb waits for what another one needs.

Exit codes: 0, all is well; 1, it failed, or found something wrong; 2, the command line is wrong;
130, interrupted.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

import holdfast
from holdfast.errors import HoldfastError
from holdfast.printable import printable_lines

__all__ = ["main"]

_INTERRUPTED: Final = 130
#: each is a module here; the first line of its help is told without loading it
_VERBS: Final = {
    "run": "Run a program.",
    "info": "Show the plan of a program, without running it.",
    "list": "List the jobs that run.",
    "status": "Show what a running job does.",
    "top": "Show a running job, live.",
    "ui": "Open the web page of running jobs.",
    "checkpoint": "Let a running job take a checkpoint.",
    "savepoint": "Take a savepoint of a running job, or dispose of one.",
    "stop": "End a running job with a savepoint.",
    "cancel": "End a running job.",
    "rescale": "Give a running job another parallelism.",
    "history": "Show jobs that have ended.",
    "checkpoints": "Look at checkpoints and savepoints.",
    "state": "Read, export and compare what states hold.",
    "new": "Make a job to begin with, and its tests.",
    "demo": "Break an order system, which then proves itself.",
    "completion": "Print what a shell needs to complete verbs.",
}
#: a verb whose module cannot have its name: in this package it would hide Python's own
_MODULES: Final = {"list": "list_jobs"}


class _Verbs(click.Group):
    """Loads the modules of its verbs when they are needed, and says in one line what failed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = _MODULES.get(cmd_name, cmd_name)
        command = import_module(f"holdfast.cli.{module}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(_VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None
        except HoldfastError as error:
            raise click.ClickException(_shown(str(error))) from error
        except click.ClickException as error:
            vars(error)["message"] = _shown(error.message)
            raise


def _shown(message: str) -> str:
    """A message for a terminal; a line break in a name does not make a line of its own."""
    return printable_lines(message).replace("\n", "\n  ")


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="VERB ...",
    epilog="holdfast VERB --help has the options of a verb, with examples.",
)
@click.version_option(holdfast.__version__, "-V", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """Run Holdfast's jobs, look at them, and at what they have saved."""
