"""The command as a whole: its help, its errors, its version, completion, and what it loads."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import holdfast as package
from holdfast.cli import _VERBS, main
from tests.cli.conftest import Holdfast

ROOT = Path(__file__).parents[2]
SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
#: up to what the shell would do with its output; not in quotes, where it names a process
COMMAND = re.compile(r"(?<!\")holdfast [^|>)\n]+")


def test_what_the_help_says_of_a_verb_is_what_the_verb_says() -> None:
    context = click.Context(main)
    for name, told in _VERBS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert (command.help or "").splitlines()[0] == told


def all_commands() -> list[tuple[str, ...]]:
    """Every verb, and every verb of a group."""
    context = click.Context(main)
    paths: list[tuple[str, ...]] = []
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        paths.append((name,))
        if isinstance(command, click.Group):
            paths += [(name, inner) for inner in command.list_commands(context)]
    return paths


@pytest.mark.parametrize("path", all_commands(), ids="-".join)
def test_every_verb_helps_with_examples(holdfast: Holdfast, path: tuple[str, ...]) -> None:
    done = holdfast(*path, "--help")
    assert done.exit_code == 0
    _, listed, commands = done.output.partition("Commands:\n")
    assert listed or "Examples:\n" in done.output
    assert "..." not in commands, "cut short"


def named_commands() -> list[str]:
    """Every command line in the documentation and in the help texts."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    blocks = (block for page in pages for block in SHELL.findall(page.read_text()))
    texts = [re.sub(r"\\\n\s*", "", block) for block in blocks]
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        inner = command.commands.values() if isinstance(command, click.Group) else [command]
        texts += [one.epilog or "" for one in inner if one is not None]
    return sorted({line for text in texts for line in COMMAND.findall(text)})


def test_commands_are_named() -> None:
    assert len(named_commands()) > 20


@pytest.mark.parametrize("line", named_commands())
def test_every_command_that_is_named_can_be_given(line: str) -> None:
    arguments = shlex.split(line)[1:]
    command: click.Command = main
    context = click.Context(main)
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, name
        command, context = found, click.Context(found, context, **found.context_settings)
    _, left, _ = command.make_parser(context).parse_args(arguments)
    assert left == []


def test_the_version_is_the_package_s(holdfast: Holdfast) -> None:
    assert holdfast("--version").output.split()[-1] == package.__version__


def test_a_verb_that_is_not_there(holdfast: Holdfast) -> None:
    done = holdfast("runn")
    assert done.exit_code == 2
    assert "No such command 'runn'" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(holdfast: Holdfast, shell: str) -> None:
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in holdfast("completion", shell).output


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return {module.partition(".")[0] for module in done.stdout.split()}


HEAVY = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "rocksdict", "starlette", "uvicorn"}


def test_the_package_loads_nothing_but_itself() -> None:
    before = loaded_by("pass")
    assert loaded_by("import holdfast") - before == {"holdfast"}


def test_the_package_loads_quickly() -> None:
    """In processor time, which does not depend on what else the machine has to do."""
    program = (
        "import time; t = time.process_time(); import holdfast; print(time.process_time() - t)"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.3


def test_the_api_and_the_help_load_nothing_heavy() -> None:
    """A package that takes long to load is loaded when a job needs it."""
    everything = (
        "import holdfast.datastream, holdfast.common; "
        "from holdfast.cli import main; main(['--help'], standalone_mode=False)"
    )
    assert loaded_by(everything) & HEAVY == set()
