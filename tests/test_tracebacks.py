"""A traceback that a user sees begins and ends in the user's own code; all frames on request."""

from __future__ import annotations

import json
import linecache
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from holdfast.common._cloudpickle import dumps, know_sources, source_lines
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import HoldfastError, InternalError, UserFunctionError
from holdfast.testing import run_locally
from holdfast.tracebacks import DEBUG_VARIABLE, rendered, user_traceback, without_java_stack


def parsed(text: str) -> Any:
    return json.loads(text)


def failure(env: StreamExecutionEnvironment) -> UserFunctionError:
    env.from_collection(["{"]).map(parsed).print()
    with pytest.raises(UserFunctionError) as caught:
        run_locally(env)
    return caught.value


def files(trace: str) -> list[str]:
    return [
        line.split('"')[1].rpartition("/")[2] for line in trace.splitlines() if "  File" in line
    ]


def test_it_ends_in_the_user_s_line_and_not_in_python_s_library(
    env: StreamExecutionEnvironment,
) -> None:
    error = failure(env)
    assert files(error.user_traceback) == [Path(__file__).name]
    assert "return json.loads(text)" in error.user_traceback


def test_all_frames_are_shown_on_request(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    shown = files(failure(env).user_traceback)
    assert shown[0] == "<chain>"
    assert shown[-1] == "decoder.py"


def test_causes_are_cut_too() -> None:
    def fails() -> None:
        try:
            parsed("{")
        except ValueError as error:
            raise KeyError("no order") from error

    with pytest.raises(KeyError) as caught:
        fails()
    trace = user_traceback(caught.value)
    assert files(trace) == [Path(__file__).name] * 4
    assert "The above exception was the direct cause" in trace
    assert "direct cause" not in user_traceback(caught.value, causes=False)


def test_a_library_function_that_was_given_as_it_is_keeps_its_frames(
    env: StreamExecutionEnvironment,
) -> None:
    env.from_collection(["{"]).map(json.loads).print()
    with pytest.raises(UserFunctionError) as caught:
        run_locally(env)
    assert files(caught.value.user_traceback)[0] == "__init__.py"


def test_an_error_of_the_engine_has_all_frames() -> None:
    shown = {}
    for kind in (HoldfastError, InternalError):
        try:
            try:
                parsed("{")
            except ValueError as error:
                raise kind("broken") from error
        except HoldfastError as error:
            shown[kind] = rendered(error)
    assert files(shown[HoldfastError]) == [Path(__file__).name]
    assert "decoder.py" in files(shown[InternalError])


PROGRAM = """
    from holdfast.datastream import StreamExecutionEnvironment

    def build(env):
        env.from_collection([1]).map(1)

    build(StreamExecutionEnvironment.get_execution_environment())
"""


@pytest.mark.parametrize("all_frames", [False, True])
def test_a_program_that_python_runs(tmp_path: Path, all_frames: bool) -> None:
    script = tmp_path / "job.py"
    script.write_text(dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={"HOLDFAST_DEBUG": "1" if all_frames else "0"},
    )
    assert done.returncode == 1
    expected = ["job.py", "job.py", *(["data_stream.py"] if all_frames else [])]
    assert files(done.stderr)[:3] == expected
    assert "map: expected a MapFunction or a callable; got 1" in done.stderr.splitlines()[-1]


def test_the_source_of_a_cell_goes_with_its_functions() -> None:
    """A worker has no file of a notebook's cell; a file that it has is not replaced."""
    text = "def halve(x):\n    return x / 0\n"
    cell = "/nowhere/ipykernel_1/2.py"
    linecache.cache[cell] = (len(text), None, text.splitlines(True), cell)
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, cell, "exec"), scope)
    named: set[str] = set()
    dumps([scope["halve"], parsed, lambda: 0], named)
    sources = source_lines(named)
    assert set(sources) == {cell, __file__}
    del linecache.cache[cell]
    try:
        know_sources({**sources, __file__: ("not this\n",)})
        with pytest.raises(ZeroDivisionError) as caught:
            scope["halve"](1)
        assert "    return x / 0\n" in user_traceback(caught.value)
        assert linecache.getline(__file__, 1).startswith('"""A traceback')
    finally:
        linecache.cache.pop(cell, None)


def test_frames_after_the_user_s_last_line_are_counted() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        parsed("{")
    assert rendered(caught.value).endswith(
        "(3 frames left out after the last line; HOLDFAST_DEBUG=1 shows all)\n"
    )
    with pytest.raises(ZeroDivisionError) as other:
        _ = 1 / 0
    assert rendered(other.value).endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("stack", ["\n\tat a.B.c(B.java:1)", r"\n\tat a.B.c(B.java:1)", ""])
def test_the_stack_of_java_is_cut_off(stack: str) -> None:
    told = "java.io.IOException: no\nmore at once"
    assert without_java_stack(f"{told}{stack}{stack}\n") == told
