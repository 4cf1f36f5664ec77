"""``holdfast run``: a program, with settings from the command line."""

from __future__ import annotations

from collections.abc import Mapping

import click

from holdfast.cli.console import Console
from holdfast.cli.options import JOB_VERB, examples, job_options, settings_of
from holdfast.cli.script import run_script
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.engines import Launcher, starts_spark
from holdfast.tracebacks import showing_all_frames


@click.command(
    "run",
    context_settings=JOB_VERB,
    epilog=examples(
        "holdfast run job.py",
        "holdfast run --local job.py",
        "holdfast run -p 4 --checkpoint-dir s3a://bucket/checkpoints job.py --input data",
        "holdfast run -s savepoints/savepoint-orders-7-1b2c3d4e -n job.py",
        "holdfast run --master spark://host:7077 -D spark.executor.memory=4g job.py",
        "holdfast run -D execution.checkpointing.interval=10s job.py",
        "holdfast run -p 4 -m shop.orders --input data",
    ),
)
@job_options
@click.option("--debug", is_flag=True, help="Show all frames of the error that ends the program.")
def command(
    debug: bool,
    script: str,
    is_module: bool,
    arguments: tuple[str, ...],
    properties: Mapping[str, str],
    **options: object,
) -> None:
    """Run a program.

    It runs as with python: arguments after JOB.py are its own. The settings given here apply to
    the environment that the program gets from get_execution_environment(); settings in the program
    take precedence.
    """
    console = Console()

    class RunEnvironment(StreamExecutionEnvironment):
        """Says why nothing happens for some seconds."""

        def _launcher(self) -> Launcher:
            if starts_spark(self._configuration):
                console.say("starting Spark ...")
            return super()._launcher()

    with console.reporting(), showing_all_frames(debug):
        run_script(
            script,
            arguments,
            settings_of(properties, **options),
            RunEnvironment,
            is_module=is_module,
            describe=console.brief,
        )
