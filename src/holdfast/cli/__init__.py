"""The command ``holdfast``.

A module for each verb, or for each group of verbs about one thing, with its ``command``. A module
is loaded when its verb is used, or its help is shown, so that no verb waits for another's imports.

Exit codes: 0, success; 1, it failed, or found a problem; 2, the command line is wrong;
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
#: each is a module of `commands`; the first line of its help is shown without loading it
_VERBS: Final = {
    "run": "Run a program.",
    "info": "Show the plan of a program, without running it.",
    "list": "List running jobs.",
    "status": "Show what a running job does.",
    "top": "Show a running job, live.",
    "ui": "Open the web UI of running jobs.",
    "checkpoint": "Take a checkpoint of a running job.",
    "savepoint": "Take a savepoint of a running job, or delete one.",
    "stop": "End a running job with a savepoint.",
    "cancel": "End a running job.",
    "rescale": "Give a running job another parallelism.",
    "history": "Show finished jobs.",
    "checkpoints": "Inspect checkpoints and savepoints.",
    "state": "Read, export and compare state.",
    "torture": "Prove that a job recovers from faults.",
    "new": "Create a new job with tests.",
    "demo": "Run an order system, let it fail, and check its results.",
    "completion": "Print a script for shell completion.",
}
#: a verb whose module has another name, because that would hide a Python builtin here
_MODULES: Final = {"list": "list_jobs"}


class _Verbs(click.Group):
    """Loads the modules of its verbs when they are needed, and reports failures in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module = _MODULES.get(cmd_name, cmd_name)
        command = import_module(f"holdfast.cli.commands.{module}").command
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
    """Return a message for a terminal; a line break in a name does not start a new line."""
    return printable_lines(message).replace("\n", "\n  ")


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="VERB ...",
    epilog="holdfast VERB --help has the options of a verb, with examples.",
)
@click.version_option(holdfast.__version__, "-V", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """Run and monitor Holdfast's jobs, and inspect their saved state."""
