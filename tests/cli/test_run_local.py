"""``holdfast run --local``: the first try, and debugging, without Spark."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.conftest import Holdfast, Program

SETTINGS = """
    import json
    from holdfast.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment()
    print(json.dumps([env._configuration.to_dict(), env.get_parallelism()]))
"""
DEBUGGED = """
    import sys
    import threading
    from holdfast.datastream import StreamExecutionEnvironment

    def double(number):
        here = threading.current_thread() is threading.main_thread()
        breakpoint()
        return 2 * number

    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([3, 4]).key_by(lambda number: number).map(double).print()
    env.execute("doubles")
    print("ended", "pyspark" in sys.modules)
"""
PROMPT = "(Pdb) "


def test_it_is_an_engine(holdfast: Holdfast, program: Program) -> None:
    done = holdfast("run", "--local", program(SETTINGS))
    assert done.exit_code == 0, done.output
    assert json.loads(done.output) == [{"holdfast.engine": "local"}, 1]
    assert json.loads(holdfast("run", "--local", "-p", "2", program(SETTINGS)).output)[1] == 2


@pytest.mark.parametrize("other", ["--master local[2]", "--engine resident", "--engine auto"])
def test_it_is_not_on_spark(holdfast: Holdfast, program: Program, other: str) -> None:
    done = holdfast("run", "--local", *other.split(), program(SETTINGS))
    assert done.exit_code == 2
    assert f"without Spark, and {other} runs it on Spark; leave out one of them" in done.output


def test_it_may_be_said_twice(holdfast: Holdfast, program: Program) -> None:
    done = holdfast("run", "--local", "--engine", "local", program(SETTINGS))
    assert done.exit_code == 0, done.output


def test_the_plan_names_the_engine(holdfast: Holdfast, program: Program) -> None:
    done = holdfast("info", "--local", program(DEBUGGED))
    told = "engine: local, as set by 'holdfast.engine': in this process, without Spark"
    assert done.output.splitlines()[1] == told


class Session:
    """A program in a terminal of its own."""

    def __init__(self, *command: str) -> None:
        self._terminal, its_side = pty.openpty()
        self._process = subprocess.Popen(
            command,
            stdin=its_side,
            stdout=its_side,
            stderr=its_side,
            env={**os.environ, "TERM": "dumb", "PYTHON_COLORS": "0"},
        )
        os.close(its_side)
        self._read = ""

    def type(self, line: str) -> str:
        """Type a line at the next prompt; return what was written up to that prompt."""
        before = self._until(PROMPT)
        os.write(self._terminal, f"{line}\n".encode())
        return before

    def end(self) -> str:
        """Return what was written since, when the program has ended."""
        rest = self._until(None)
        os.close(self._terminal)
        assert self._process.wait(600) == 0, rest
        return rest

    def _until(self, text: str | None) -> str:
        while text is None or text not in self._read:
            ready, _, _ = select.select([self._terminal], [], [], 60)
            assert ready, f"nothing more came after {self._read!r}"
            try:
                came = os.read(self._terminal, 4096)
            except OSError:  # Linux reports the end of the other side as an error
                came = b""
            if not came:
                assert text is None, f"it ended after {self._read!r}"
                break
            self._read += came.decode()
        found, _, self._read = self._read.partition(text or "\0")
        return found.replace("\r", "")


def test_a_debugger_in_a_function_has_the_terminal(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(dedent(DEBUGGED))
    session = Session(sys.executable, "-m", "holdfast", "run", "--local", str(job))
    assert ")double()" in session.type("p 'number', number")
    assert "('number', 3)" in session.type("number = 50")
    session.type("p 'main thread', here")
    assert "('main thread', True)" in session.type("c")
    session.type("c")
    lines = session.end().splitlines()
    assert {"100", "8", "ended False"} <= set(lines)
