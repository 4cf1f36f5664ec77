"""Runs a user's program in this process, as ``python PROGRAM ARGUMENTS`` would."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType

import click

from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import HoldfastError, InternalError

__all__ = ["run_script"]


def run_script(
    script: str,
    arguments: Sequence[str],
    settings: Mapping[str, str],
    environment: type[StreamExecutionEnvironment] = StreamExecutionEnvironment,
) -> None:
    """Run a program as ``__main__``, with these settings below its own.

    An error of Holdfast is told in its own words, with the line of the program that it comes from;
    any other as Python would, from the program's first line on.

    Raises:
        SystemExit: what the program raises, or with the exit code of its failure.
    """

    def make(given: Configuration | None) -> StreamExecutionEnvironment:
        return environment(Configuration(settings).add_all(given or Configuration()))

    try:
        with (
            StreamExecutionEnvironment.context_environment(make),
            _as_python_would(script, arguments),
        ):
            runpy.run_path(script, run_name="__main__")
    except InternalError as error:
        _print_traceback(error, script)
        raise SystemExit(1) from None
    except HoldfastError as error:
        raise click.ClickException(f"{_where(error, script)}{error}") from error
    except Exception as error:
        _print_traceback(error, script)
        raise SystemExit(1) from None


@contextmanager
def _as_python_would(script: str, arguments: Sequence[str]) -> Iterator[None]:
    """The program's arguments, and its directory as the first place to import from."""
    argv, path = sys.argv, sys.path
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        # NB: what is there now is the directory of the command, which python would not have
        sys.path = [os.path.dirname(os.path.realpath(script)), *path[1:]]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path


def _where(error: BaseException, script: str) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == script
    ]
    return f"{script}:{lines[-1]}: " if lines else ""


def _print_traceback(error: BaseException, script: str) -> None:
    traceback.print_exception(type(error), error, _from_script_on(error.__traceback__, script))


def _from_script_on(frames: TracebackType | None, script: str) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename != script:
        frames = frames.tb_next
    return frames
