"""``holdfast run``: a program, with settings from the command line."""

from __future__ import annotations

from collections.abc import Mapping

import click

from holdfast.cli.options import JOB_VERB, examples, job_options, settings_of
from holdfast.cli.script import run_script

__all__ = ["command"]


@click.command(
    "run",
    context_settings=JOB_VERB,
    epilog=examples(
        "holdfast run job.py",
        "holdfast run -p 4 --checkpoint-dir s3a://bucket/checkpoints job.py --input data",
        "holdfast run -s savepoints/savepoint-orders-7-1b2c3d4e -n job.py",
        "holdfast run --master spark://host:7077 -D spark.executor.memory=4g job.py",
        "holdfast run -D execution.checkpointing.interval=10s job.py",
    ),
)
@job_options
def command(
    script: str, arguments: tuple[str, ...], properties: Mapping[str, str], **options: object
) -> None:
    """Run a program.

    It runs as with python: what comes after JOB.py is its own. The settings given here are those of
    the environment that the program gets from get_execution_environment(); what the program itself
    sets goes before them.
    """
    run_script(script, arguments, settings_of(properties, **options))
