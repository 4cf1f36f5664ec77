"""``holdfast info``: the plan in three forms, and nothing is run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast, Program

ROOT = Path(__file__).parents[2]
WORDS = """
    from holdfast.datastream import OutputTag, StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection(["a"]).map(str.split).name('split "a" & <b>').uid("split")
    words.key_by(len).map(str).print()
    words.get_side_output(OutputTag("late")).print()
    try:
        {execute}
    except Exception as error:
        print("caught", error)
    print("after the job")
"""
RUNS = ["env.execute('words')", "env.execute_async('words')", "words.execute_and_collect('words')"]


@pytest.mark.parametrize("execute", RUNS)
def test_the_plan_of_a_program_that_is_not_run(
    holdfast: Holdfast, program: Program, execute: str
) -> None:
    done = holdfast("info", "-p", "3", program(WORDS.format(execute=execute)))
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert lines[0] == "job 'words': 3 levels, 2 exchanges"
    assert lines[1] == "engine: resident, if the session has 3 task slots free"
    assert '    split "a" & <b> [map] uid=split parallelism=3' in lines
    assert "after the job" not in done.output
    assert "caught" not in done.output


def test_json(holdfast: Holdfast, program: Program) -> None:
    done = holdfast("info", "-p", "3", "--json", program(WORDS.format(execute=RUNS[0])))
    nodes = json.loads(done.output)["nodes"]
    assert [node["parallelism"] for node in nodes] == [1, 3, 3, 3, 3]


def test_mermaid(holdfast: Holdfast, program: Program) -> None:
    done = holdfast("info", "-p", "3", "--mermaid", program(WORDS.format(execute=RUNS[0])))
    assert done.output == (
        "flowchart LR\n"
        '  subgraph level0["level 0, parallelism 1"]\n'
        '    n0(["Source: Collection"])\n'
        "  end\n"
        '  subgraph level1["level 1, parallelism 3"]\n'
        '    n1["split #quot;a#quot; #amp; #lt;b#gt;"]\n'
        '    n4["Sink: Print to Std. Out"]\n'
        "  end\n"
        '  subgraph level2["level 2, parallelism 3"]\n'
        '    n2["Map"]\n'
        '    n3["Sink: Print to Std. Out"]\n'
        "  end\n"
        '  n0 ==>|"rebalance"| n1\n'
        '  n1 -->|"late"| n4\n'
        '  n1 ==>|"hash"| n2\n'
        "  n2 --> n3\n"
    )


def test_a_program_without_a_job(holdfast: Holdfast, program: Program) -> None:
    script = program("print('hello')")
    done = holdfast("info", script)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {script} came to its end without executing a job; call")


def test_no_session_is_made(holdfast: Holdfast, program: Program) -> None:
    before = {module for module in sys.modules if module.startswith("holdfast.spark")}
    holdfast("info", "-p", "1", program(WORDS.format(execute=RUNS[0])))
    after = {module for module in sys.modules if module.startswith("holdfast.spark")}
    assert after == before


def test_the_picture_in_the_documentation(holdfast: Holdfast, program: Program) -> None:
    """It is that of the first program of the README."""
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "command_line.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (picture,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    assert holdfast("info", "--mermaid", program(code)).output == picture


def test_the_engine_that_was_asked_for(holdfast: Holdfast, program: Program) -> None:
    script = program(WORDS.format(execute=RUNS[0]))
    asked = holdfast("info", "--engine", "epochs", script)
    assert asked.output.splitlines()[1] == "engine: epochs, as set by 'holdfast.engine'"
    assert holdfast("info", "--engine", "other", script).exit_code == 2
