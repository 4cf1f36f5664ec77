"""``holdfast completion``: prints a script for shell completion."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from holdfast.cli.options import examples

_SHELLS: dict[str, type[ShellComplete]] = {
    "bash": BashComplete,
    "zsh": ZshComplete,
    "fish": FishComplete,
}


@click.command(
    "completion",
    epilog=examples(
        """bash, in ~/.bashrc:  eval "$(holdfast completion bash)\"""",
        """zsh, in ~/.zshrc:    eval "$(holdfast completion zsh)\"""",
        "fish:                holdfast completion fish > ~/.config/fish/completions/holdfast.fish",
    ),
)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script for shell completion."""
    root = ctx.find_root().command
    click.echo(_SHELLS[shell](root, {}, "holdfast", "_HOLDFAST_COMPLETE").source())
