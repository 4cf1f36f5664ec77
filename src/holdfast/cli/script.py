"""Runs a user's program in this process, as ``python PROGRAM ARGUMENTS`` would."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import NoReturn

import click

from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import HoldfastError, InternalError, JobDefinitionError
from holdfast.filesystem import configure, hadoop_options
from holdfast.printable import printable
from holdfast.tracebacks import is_debugging, rendered


def run_script(
    script: str,
    arguments: Sequence[str],
    settings: Mapping[str, str],
    environment: type[StreamExecutionEnvironment] = StreamExecutionEnvironment,
    *,
    is_module: bool = False,
    describe: Callable[[HoldfastError], str] = str,
) -> None:
    """Run a program as ``__main__``, with these settings as defaults.

    ``is_module``: it is the name of a module, not a file. ``describe``: returns the message to
    print for an error of Holdfast.

    An error of Holdfast is printed as its message, with the line of the program that it comes from;
    any other error as Python would, with the program's own lines only. With ``HOLDFAST_DEBUG``
    either is printed with all frames.

    Raises:
        SystemExit: what the program raises, or with the exit code of its failure.
    """
    # a program may use addresses such as s3a:// before or after its job
    configure(hadoop_options(settings))

    made: list[StreamExecutionEnvironment] = []

    def make(given: Configuration | None) -> StreamExecutionEnvironment:
        told = Configuration(settings)._come_from("command line")
        made.append(environment(told.add_all(given or Configuration())))
        return made[-1]

    place = os.getcwd() if is_module else os.path.dirname(os.path.realpath(script))
    try:
        with (
            StreamExecutionEnvironment.context_environment(make),
            _as_python_would(script, arguments, place),
        ):
            if is_module:
                module, script = script, _file_of(script)
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(script, run_name="__main__")
    except Exception as error:
        _fail(error, script, describe)
    _warn_if_not_executed(made, script)


def _fail(error: Exception, script: str, describe: Callable[[HoldfastError], str]) -> NoReturn:
    """End with the error of a program."""
    if isinstance(error, HoldfastError) and not _needs_frames(error):
        raise click.ClickException(f"{_where(error, script)}{describe(error)}") from error
    click.echo(rendered(error), nl=False, err=True)
    raise SystemExit(1) from None


@contextmanager
def _as_python_would(script: str, arguments: Sequence[str], place: str) -> Iterator[None]:
    """Set the program's arguments, and the first place to import from."""
    argv, path = sys.argv, sys.path
    sys.argv = [script, *arguments]
    if not sys.flags.safe_path:
        # NB: the current entry is the directory of the command, which python would not have
        sys.path = [place, *path[1:]]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path


def _file_of(module: str) -> str:
    """Return the file that runs as a module.

    Raises:
        JobDefinitionError: when there is none.
    """
    try:
        found = find_spec(module)
        if found is not None and found.submodule_search_locations is not None:
            found = find_spec(f"{module}.__main__")
    except ModuleNotFoundError:  # of a package in its name
        found = None
    if found is None or found.origin is None:
        message = (
            f"there is no module '{module}' that can be run; it is looked for in the current "
            f"directory, {os.getcwd()}, and among the installed packages"
        )
        raise JobDefinitionError(message)
    return found.origin


def _warn_if_not_executed(made: Sequence[StreamExecutionEnvironment], script: str) -> None:
    """Say that a program has built a job and has not run it: ``execute`` is easily forgotten."""
    sinks = [sink for one in made for sink in one._unexecuted_sinks()]
    if sinks:
        names = ", ".join(f"'{printable(name)}'" for name in sinks)
        click.echo(
            f"Warning: {script} has ended without running the job that writes to {names}; call "
            "env.execute() at its end",
            err=True,
        )


def _needs_frames(error: HoldfastError) -> bool:
    """Return whether the message alone does not say enough."""
    return is_debugging() or isinstance(error, InternalError)


def _where(error: BaseException, script: str) -> str:
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == script
    ]
    return f"{script}:{lines[-1]}: " if lines else ""
