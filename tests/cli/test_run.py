"""``holdfast run``: the program is run as Python would, with the settings below its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.datastream import StreamExecutionEnvironment
from tests.cli.conftest import Holdfast, Program

SETTINGS = """
    import json, sys
    from holdfast.common import Configuration
    from holdfast.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment({given})
    print(json.dumps(env._configuration.to_dict()))
"""


def test_options_are_settings_of_the_environment(holdfast: Holdfast, program: Program) -> None:
    options = "-s sp -n --claim-mode claim -p 3 --checkpoint-dir cp --master local[7]"
    other = ["--engine", "epochs", "-D", "pipeline.name=a=b", "-D", "parallelism.default=5"]
    done = holdfast("run", *options.split(), *other, program(SETTINGS.format(given="")))
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == {
        "execution.state-recovery.path": "sp",
        "execution.state-recovery.ignore-unclaimed-state": "True",
        "execution.state-recovery.claim-mode": "claim",
        "execution.checkpointing.dir": "cp",
        "holdfast.engine": "epochs",
        "parallelism.default": "3",
        "pipeline.name": "a=b",
        "spark.master": "local[7]",
    }


def test_what_is_not_asked_for_is_not_set(holdfast: Holdfast, program: Program) -> None:
    assert json.loads(holdfast("run", program(SETTINGS.format(given=""))).output) == {}


def test_the_program_s_own_settings_go_first(holdfast: Holdfast, program: Program) -> None:
    given = "Configuration({'parallelism.default': '2'})"
    done = holdfast("run", "-p", "3", "-D", "a=b", program(SETTINGS.format(given=given)))
    assert json.loads(done.output) == {"a": "b", "parallelism.default": "2"}


def test_settings_are_gone_afterwards(holdfast: Holdfast, program: Program) -> None:
    holdfast("run", "-p", "3", program("raise SystemExit"))
    env = StreamExecutionEnvironment.get_execution_environment()
    assert env._configuration.to_dict() == {}


def test_the_program_sees_what_python_would_show_it(holdfast: Holdfast, program: Program) -> None:
    script = program(
        """
        import json, sys
        import beside

        print(json.dumps([__name__, __file__, sys.argv, sys.path[0], beside.VALUE]))
        """
    )
    (Path(script).parent / "beside.py").write_text("VALUE = 7")
    path = list(sys.path)
    done = holdfast("run", "-p", "2", script, "-p", "3", "--help", "x")
    assert done.exit_code == 0, done.output
    folder = os.path.realpath(Path(script).parent)
    expected = ["__main__", script, [script, "-p", "3", "--help", "x"], folder, 7]
    assert json.loads(done.output) == expected
    assert sys.path == path


@pytest.mark.parametrize(
    ("text", "code"),
    [("raise SystemExit(7)", 7), ("import sys; sys.exit()", 0), ("raise KeyboardInterrupt", 130)],
)
def test_exit_codes(holdfast: Holdfast, program: Program, text: str, code: int) -> None:
    assert holdfast("run", program(text)).exit_code == code


def test_an_error_of_holdfast_is_one_line_with_its_place(
    holdfast: Holdfast, program: Program
) -> None:
    script = program(
        """
        from holdfast.datastream import StreamExecutionEnvironment

        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1]).map(abs).set_parallelism(9).set_max_parallelism(8)
        env.execute()
        """
    )
    done = holdfast("run", script)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    where = f"Error: {script}:6: operator 'Map' has parallelism 9, above its max parallelism 8; "
    assert line.startswith(where)


def test_another_error_has_the_program_s_part_of_the_traceback(
    holdfast: Holdfast, program: Program
) -> None:
    script = program("def f():\n    return 1 / 0\n\n\nf()\n")
    done = holdfast("run", script)
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[:2] == [
        "Traceback (most recent call last):",
        f'  File "{script}", line 5, in <module>',
    ]
    assert lines[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-p", "0", "JOB"], "0 is not in the range x>=1"),
        (["-D", "key", "JOB"], "expected KEY=VALUE; got 'key'"),
        (["-D", "=value", "JOB"], "expected KEY=VALUE; got '=value'"),
        (["--claim-mode", "steal", "JOB"], "'steal' is not one of"),
        (["nowhere.py"], "'nowhere.py' does not exist"),
        ([], "Missing argument 'JOB.py'"),
    ],
)
def test_a_wrong_command_line(
    holdfast: Holdfast, program: Program, arguments: list[str], message: str
) -> None:
    script = program("raise AssertionError('must not run')")
    done = holdfast("run", *(script if part == "JOB" else part for part in arguments))
    assert done.exit_code == 2
    assert message in done.stderr


JOB = '''
"""Counts to a number; told to, it ends halfway with a savepoint."""

import sys

from counting import Totals, key_of

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_source(NumberSequenceSource(0, 1999)).uid("numbers")
numbers.key_by(key_of).process(Totals()).uid("totals").print()
print("parallelism", env.get_parallelism())
if len(sys.argv) > 1:
    client = env.execute_async("count")
    print("savepoint", client.stop_with_savepoint(False, sys.argv[1]).result(120))
else:
    env.execute("count")
'''
COUNTING = """
from holdfast.datastream import KeyedProcessFunction
from holdfast.datastream.state import ValueStateDescriptor


def key_of(number):
    return number % 2


class Totals(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()
"""


@pytest.mark.spark
@pytest.mark.engine("epochs")
def test_a_job_on_spark_ends_with_a_savepoint_and_goes_on_from_it(
    program: Program, tmp_path: Path
) -> None:
    """As a user does it: in processes of its own, the function in a module beside the program."""
    script = program(JOB)
    (Path(script).parent / "counting.py").write_text(COUNTING)

    def run(*arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "run", *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    def counts(lines: list[str]) -> list[str]:
        return [line.partition("> ")[2] for line in lines if "> (" in line]

    small = ["-D", "holdfast.epoch.max-records=20", "-D", "execution.buffer-timeout.interval=0"]
    first = run("-p", "2", *small, script, "savepoints")
    assert first[0] == "parallelism 2"
    savepoint = first[-1].removeprefix("savepoint ")
    second = run("-p", "3", "-s", savepoint, script)
    assert second[0] == "parallelism 3"
    assert 0 < len(counts(first)) < 2000
    expected = [f"({key}, {count})" for key in (0, 1) for count in range(1, 1001)]
    assert sorted(counts(first) + counts(second)) == sorted(expected)
