"""Options that several verbs have, and what they mean as a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from holdfast.common.engine_options import ENGINE, EngineSetting
from holdfast.common.recovery_options import ClaimMode

__all__ = ["JOB_VERB", "examples", "job_options", "json_option", "properties_option", "settings_of"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: the keys behind the options of a job
_KEYS: Final = {
    "savepoint": "execution.state-recovery.path",
    "allow_non_restored_state": "execution.state-recovery.ignore-unclaimed-state",
    "claim_mode": "execution.state-recovery.claim-mode",
    "parallelism": "parallelism.default",
    "checkpoint_dir": "execution.checkpointing.dir",
    "engine": ENGINE,
    "master": "spark.master",
}

#: for verbs that run a program: what comes after its name is the program's, options too
JOB_VERB: Final = {"allow_interspersed_args": False}


def examples(*lines: str) -> str:
    """The end of a help text: commands to copy, line by line."""
    # NB: the backspace keeps click from making one paragraph of them
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def _properties(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    for text in given:
        if not text.partition("=")[0].strip() or "=" not in text:
            message = f"expected KEY=VALUE; got {text!r}"
            raise click.BadParameter(message)
    return {key.strip(): value for key, _, value in (text.partition("=") for text in given)}


properties_option = click.option(
    "-D",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_properties,
    help="A setting: Flink's keys, and spark.* and fs.*; may be given several times.",
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def job_options(command: _Command) -> _Command:
    """The options of a verb that runs a program, and the program; see `settings_of`."""
    for option in reversed(
        (
            click.option(
                "-s",
                "--from-savepoint",
                "savepoint",
                metavar="PATH",
                help="Begin with this savepoint, or retained checkpoint.",
            ),
            click.option(
                "-n",
                "--allow-non-restored-state",
                is_flag=True,
                default=None,
                help="Leave state of the savepoint behind that no operator claims.",
            ),
            click.option(
                "--claim-mode",
                type=click.Choice([mode.value for mode in ClaimMode], case_sensitive=False),
                help="Who owns the savepoint then; with claim, the job deletes it.",
            ),
            click.option(
                "-p",
                "--parallelism",
                type=click.IntRange(min=1),
                help="The parallelism of operators for which the program says none.",
            ),
            click.option(
                "--checkpoint-dir",
                metavar="PATH",
                help="Where checkpoints are kept, below the name of the job.",
            ),
            click.option(
                "--engine",
                type=click.Choice([engine.value for engine in EngineSetting], case_sensitive=False),
                help="What runs the job: subtasks that stay, or a Spark job per epoch.",
            ),
            click.option(
                "--master",
                metavar="URL",
                help="Spark's master, such as local[4] or spark://host:7077.",
            ),
            properties_option,
            click.argument(
                "script", metavar="JOB.py", type=click.Path(exists=True, dir_okay=False)
            ),
            click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        )
    ):
        command = option(command)
    return command


def settings_of(properties: Mapping[str, str], **options: object) -> dict[str, str]:
    """The configuration that a command line asks for; its options go before its ``-D``."""
    named = {_KEYS[name]: str(value) for name, value in options.items() if value is not None}
    return {**properties, **named}
