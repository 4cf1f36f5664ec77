"""``holdfast info``: the plan of a program, without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

import click

from holdfast.cli.options import JOB_VERB, examples, job_options, settings_of
from holdfast.cli.script import run_script
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.engines import engine_note
from holdfast.plan.explain import explain, to_json
from holdfast.plan.mermaid import to_mermaid
from holdfast.plan.model import Plan
from holdfast.plan.svg import to_svg

_TEXT: Final = "text"
#: other formats; the text has more than the plan
_FORMS: Final[dict[str, Callable[[Plan], str]]] = {
    "json": to_json,
    "mermaid": to_mermaid,
    "svg": to_svg,
}


class _PlanTaken(BaseException):
    """Ends a program where it would run its job; not an error, so programs do not catch it."""

    def __init__(self, plan: Plan, engine: str) -> None:
        super().__init__(plan.name)
        self.plan = plan
        self.engine = engine


class _PlanEnvironment(StreamExecutionEnvironment):
    """Passes its plan to the command instead of running it."""

    def execute(self, job_name: str | None = None) -> NoReturn:
        self._give_plan(job_name)

    def execute_async(self, job_name: str | None = None) -> NoReturn:
        self._give_plan(job_name)

    def _execute_and_collect(self, node: int, job_name: str | None) -> NoReturn:
        self._give_plan(job_name)

    def _give_plan(self, job_name: str | None) -> NoReturn:
        plan = self._take_plan(job_name)
        raise _PlanTaken(plan, engine_note(plan, self._configuration))


@click.command(
    "info",
    context_settings=JOB_VERB,
    epilog=examples(
        "holdfast info job.py",
        "holdfast info -p 4 --mermaid job.py --input data > plan.mmd",
        "holdfast info --svg job.py > plan.svg",
        "holdfast info --json job.py | jq '.nodes[].uid'",
    ),
)
@click.option("--text", "form", flag_value=_TEXT, default=_TEXT, help="As text; the default.")
@click.option("--json", "form", flag_value="json", help="As Flink's JSON plan.")
@click.option("--mermaid", "form", flag_value="mermaid", help="As a Mermaid diagram.")
@click.option("--svg", "form", flag_value="svg", help="As an SVG picture.")
@job_options
def command(
    form: str,
    script: str,
    is_module: bool,
    arguments: tuple[str, ...],
    properties: Mapping[str, str],
    **options: object,
) -> None:
    """Show the plan of a program, without running it.

    The plan has the engine, levels, chains, exchanges, parallelism and uids. The program runs up
    to the first job that it would execute, and ends there.
    """
    try:
        settings = settings_of(properties, **options)
        run_script(script, arguments, settings, _PlanEnvironment, is_module=is_module)
    except _PlanTaken as taken:
        plan = taken.plan
        text = explain(plan, taken.engine) if form == _TEXT else _FORMS[form](plan)
        click.echo(text.rstrip("\n"))
        return
    message = (
        f"{script} came to its end without executing a job; call execute() on what "
        "StreamExecutionEnvironment.get_execution_environment() returns"
    )
    raise click.ClickException(message)
