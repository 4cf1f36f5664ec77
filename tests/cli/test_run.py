"""``holdfast run``: the program is run as Python would, with the settings below its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
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
    assert origins(holdfast, program, given) == {"a": "command line"}


def origins(holdfast: Holdfast, program: Program, given: str) -> dict[str, str]:
    """Where settings come from that are not the program's."""
    text = SETTINGS.format(given=given).replace("to_dict()", "_origins")
    found: dict[str, str] = json.loads(
        holdfast("run", "-p", "3", "-D", "a=b", program(text)).output
    )
    return found


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


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of the current directory, which can be run and has a module that can."""
    folder = tmp_path / "shop_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    text = "import json, sys\nprint(json.dumps([__name__, __file__, sys.argv, sys.path[0]]))\n"
    for name in ("__main__.py", "orders.py"):
        (folder / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith(folder.name)]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "file"),
    [("shop_of_a_test", "__main__.py"), ("shop_of_a_test.orders", "orders.py")],
)
def test_a_module_is_run_as_python_would(
    holdfast: Holdfast, package: Path, name: str, file: str
) -> None:
    done = holdfast("run", "-p", "2", "-m", name, "-p", "3", "-m")
    assert done.exit_code == 0, done.output
    path = str(package / file)
    here = os.fspath(package.parent)
    assert json.loads(done.output) == ["__main__", path, [path, "-p", "3", "-m"], here]


def test_the_place_of_an_error_in_a_module(holdfast: Holdfast, package: Path) -> None:
    code = "from holdfast.errors import HoldfastError\nraise HoldfastError('no orders')"
    (package / "orders.py").write_text(code)
    done = holdfast("run", "-m", "shop_of_a_test.orders")
    assert (done.exit_code, done.stderr) == (1, f"Error: {package}/orders.py:2: no orders\n")


@pytest.mark.parametrize("name", ["nowhere_at_all", "nowhere_at_all.orders", "json.orders"])
def test_a_module_that_is_not_there(holdfast: Holdfast, name: str) -> None:
    done = holdfast("run", "-m", name)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: there is no module '{name}' that can be run; ")


def test_the_program_can_reach_the_files_of_its_job(holdfast: Holdfast, program: Program) -> None:
    script = program(
        """
        from holdfast.filesystem import configured

        print(dict(configured()))
        """
    )
    done = holdfast("run", "-D", "spark.hadoop.fs.s3a.endpoint=http://store:9000", script)
    assert done.output == "{'fs.s3a.endpoint': 'http://store:9000'}\n"


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


def test_a_program_that_forgets_to_execute(holdfast: Holdfast, program: Program) -> None:
    script = program(DIVIDES.replace("env.execute()", ""))
    done = holdfast("run", script)
    assert done.exit_code == 0
    assert done.stderr == (
        f"Warning: {script} has ended without running the job that writes to "
        "'Sink: Print to Std. Out'; call env.execute() at its end\n"
    )


DIVIDES = """
    from holdfast.datastream import StreamExecutionEnvironment

    def share(n):
        return 100 / n

    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([0]).map(share).print()
    env.execute()
"""


def test_all_frames_of_an_error_on_request(holdfast: Holdfast, program: Program) -> None:
    script = program(DIVIDES)
    short = holdfast("run", "--local", script).stderr
    assert short.count("in share") == short.count("Traceback (most recent call last)") == 1
    assert "holdfast/" not in short
    full = holdfast("run", "--local", "--debug", script)
    assert full.exit_code == 1
    assert "fusion.py" in full.stderr  # of the worker
    assert "stream_execution_environment.py" in full.stderr  # of the driver
    assert "HOLDFAST_DEBUG" not in os.environ


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
    print("savepoint", client.stop_with_savepoint(False, sys.argv[1]).result(600))
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

    def run(*arguments: str) -> tuple[list[str], list[str]]:
        """What it printed as the program, and what as the command."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "run", *arguments],
            capture_output=True,
            text=True,
            timeout=800,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said = [line for line in done.stderr.splitlines() if line.startswith("holdfast: ")]
        return done.stdout.splitlines(), said

    def counts(lines: list[str]) -> list[str]:
        return [line.partition("> ")[2] for line in lines if "> (" in line]

    small = ["-D", "holdfast.epoch.max-records=20", "-D", "execution.buffer-timeout.interval=0"]
    first, said = run("-p", "2", *small, script, "savepoints")
    assert first[0] == "parallelism 2"
    savepoint = first[-1].removeprefix("savepoint ")
    assert said[0] == "holdfast: starting Spark ..."
    assert said[1].startswith("holdfast: job 'count' is shown at http://127.0.0.1:")
    assert said[2] == "holdfast: job 'count' starts from the beginning"
    assert said[3].startswith(
        f"holdfast: job 'count' was stopped with savepoint {savepoint} after "
    )
    second, said = run("-p", "3", "-s", savepoint, script)
    assert second[0] == "parallelism 3"
    assert said[2] == f"holdfast: job 'count' starts from savepoint {savepoint}"
    assert said[3].startswith("holdfast: job 'count' has finished after ")
    assert len(said) == 4
    assert 0 < len(counts(first)) < 2000
    expected = [f"({key}, {count})" for key in (0, 1) for count in range(1, 1001)]
    assert sorted(counts(first) + counts(second)) == sorted(expected)
