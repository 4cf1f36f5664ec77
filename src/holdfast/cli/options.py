"""Options of several verbs, and their configuration keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from holdfast.common.options.engine import ENGINE, EngineSetting
from holdfast.common.options.recovery import ClaimMode

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: the configuration keys of the options of a job
_KEYS: Final = {
    "savepoint": "execution.state-recovery.path",
    "allow_non_restored_state": "execution.state-recovery.ignore-unclaimed-state",
    "claim_mode": "execution.state-recovery.claim-mode",
    "parallelism": "parallelism.default",
    "checkpoint_dir": "execution.checkpointing.dir",
    "engine": str(ENGINE),
    "master": "spark.master",
}

#: for verbs that run a program: everything after its name belongs to the program
JOB_VERB: Final = {"allow_interspersed_args": False}


def examples(*lines: str) -> str:
    """Return the examples at the end of a help text."""
    # NB: the backspace keeps click from joining the lines
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
    help="A setting: Flink's keys, spark.* and fs.*; can be repeated.",
)


def _program(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Check that the program exists; a module is searched when it runs."""
    if context.params["is_module"]:
        return given
    return str(click.Path(exists=True, dir_okay=False).convert(given, parameter, context))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


#: the options of a verb that runs a program, in the order of its help
_JOB_OPTIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    click.option(
        "-s",
        "--from-savepoint",
        "savepoint",
        metavar="PATH",
        help="Start from this savepoint or retained checkpoint.",
    ),
    click.option(
        "-n",
        "--allow-non-restored-state",
        is_flag=True,
        default=None,
        help="Discard state of the savepoint that no operator claims.",
    ),
    click.option(
        "--claim-mode",
        type=click.Choice([mode.value for mode in ClaimMode], case_sensitive=False),
        help="Who owns the savepoint; with claim, the job deletes it.",
    ),
    click.option(
        "-p",
        "--parallelism",
        type=click.IntRange(min=1),
        help="The parallelism of operators for which the program sets none.",
    ),
    click.option(
        "--checkpoint-dir",
        metavar="PATH",
        help="Where checkpoints are stored, below the name of the job.",
    ),
    click.option(
        "--engine",
        type=click.Choice([engine.value for engine in EngineSetting], case_sensitive=False),
        help="The engine: resident subtasks, a Spark job per epoch, or no Spark at all.",
    ),
    click.option(
        "--local",
        is_flag=True,
        default=None,
        help="Run in this process, without Spark: for small jobs and debuggers.",
    ),
    click.option(
        "--master",
        metavar="URL",
        help="Spark's master, such as local[4] or spark://host:7077.",
    ),
    properties_option,
    click.option(
        "-m",
        "is_module",
        is_flag=True,
        is_eager=True,
        help="JOB.py is the name of a module, as with python -m.",
    ),
    # NB: the type lets a shell complete it
    click.argument("script", metavar="JOB.py", type=click.Path(), callback=_program),
    click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
)


def job_options(command: _Command) -> _Command:
    """Return the options of a verb that runs a program; see `settings_of`."""
    for option in reversed(_JOB_OPTIONS):
        command = option(command)
    return command


def settings_of(properties: Mapping[str, str], **options: object) -> dict[str, str]:
    """Return the configuration of a command line; options take precedence over ``-D``.

    Raises:
        UsageError: when the job is to run without Spark, and on Spark.
    """
    if options.pop("local", None):
        _check_alone(options)
        options["engine"] = EngineSetting.LOCAL.value
    named = {_KEYS[name]: str(value) for name, value in options.items() if value is not None}
    return {**properties, **named}


def _check_alone(options: Mapping[str, object]) -> None:
    for name in ("engine", "master"):
        if options.get(name) not in (None, EngineSetting.LOCAL.value):
            message = (
                f"--local runs the job in this process, without Spark, and --{name} "
                f"{options[name]} runs it on Spark; leave out one of them"
            )
            raise click.UsageError(message)
