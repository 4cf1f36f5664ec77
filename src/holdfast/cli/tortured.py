"""The process of a program that ``holdfast torture`` runs: ``python -m holdfast.cli.tortured``.

Its only argument is the file with its order.
"""

from __future__ import annotations

import sys

from holdfast.cli.script import run_script
from holdfast.torture.environment import environment_for
from holdfast.torture.order import read_order


def main(path: str) -> None:
    """Run the program of an order."""
    order = read_order(path)
    run_script(
        order.program,
        order.own_arguments(),
        order.settings,
        environment_for(order),
        is_module=order.is_module,
    )


if __name__ == "__main__":
    import click

    try:
        main(sys.argv[1])
    except click.ClickException as error:
        error.show()
        raise SystemExit(1) from None
