"""What processes leave behind is removed by the next one, and nothing else is."""

from __future__ import annotations

import gc
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.common.leftovers import (
    OwnDirectory,
    SharedDirectory,
    named,
    remove_left_over,
    sweep,
)
from holdfast.common.private import NotPrivateError
from tests.another_user import NOBODY, as_root, in_child

NAME = named("databases", bytes(range(10)))

#: makes one of each kind, says so, and lives until it is killed
USER = """
import sys
from pathlib import Path
from holdfast.common.leftovers import OwnDirectory, SharedDirectory

parent, name = Path(sys.argv[1]), sys.argv[2]
own, shared = OwnDirectory(parent, "job"), SharedDirectory(parent / name)
for path in (own.path, shared.path):
    (path / "deep").mkdir(exist_ok=True)
    (path / "deep" / "file").write_text("contents")
print(own.path.name, flush=True)
sys.stdin.read()
"""

#: makes and removes directories; says what was removed from under it
BUSY = """
import sys
from pathlib import Path
from holdfast.common.leftovers import OwnDirectory, SharedDirectory, remove_left_over

parent, name, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(rounds):
    with OwnDirectory(parent, "job") as path:
        shared = SharedDirectory(parent / name)
        (path / "file").write_text("own")
        (shared.path / f"file-{sys.argv[4]}").write_text("shared")
        for used in (path, shared.path):
            remove_left_over(used)
        if not (path / "file").exists():
            print("own directory gone")
        if not (shared.path / f"file-{sys.argv[4]}").exists():
            print("shared directory gone")
        shared.release()
        remove_left_over(parent / name)
"""


@contextmanager
def process(parent: Path) -> Iterator[str]:
    """A process that uses directories, until the end of the block; gives the name of its own."""
    command = [sys.executable, "-c", USER, str(parent), NAME]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        try:
            yield run.stdout.readline().strip()
        finally:
            run.send_signal(signal.SIGKILL)


def names(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir()}


def test_a_directory_is_for_this_user_alone_and_goes_with_the_block(tmp_path: Path) -> None:
    with OwnDirectory(tmp_path, "job") as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert stat.S_IMODE((path / "lock").stat().st_mode) == 0o600
        (path / "file").touch()
    assert names(tmp_path) == set()


def test_a_directory_goes_with_its_object(tmp_path: Path) -> None:
    made = OwnDirectory(tmp_path, "job")
    assert names(tmp_path) == {made.path.name}
    del made
    gc.collect()
    assert names(tmp_path) == set()


def test_a_directory_goes_with_the_process(tmp_path: Path) -> None:
    program = USER.replace("sys.stdin.read()", "")
    command = [sys.executable, "-c", program, str(tmp_path), NAME]
    subprocess.run(command, check=True, capture_output=True)
    assert names(tmp_path) == set()


def test_a_child_process_removes_nothing(tmp_path: Path) -> None:
    made = OwnDirectory(tmp_path, "job")
    assert in_child(made.remove) == ""
    assert names(tmp_path) == {made.path.name}
    made.remove()


def test_what_live_processes_use_stays(tmp_path: Path) -> None:
    with process(tmp_path) as first:
        with process(tmp_path) as second:
            sweep(tmp_path)
            assert names(tmp_path) == {first, second, NAME}
        sweep(tmp_path)
        assert names(tmp_path) == {first, NAME}
        assert (tmp_path / NAME / "deep" / "file").exists()
    sweep(tmp_path)
    assert names(tmp_path) == set()


@pytest.mark.parametrize("make", [OwnDirectory, lambda parent, _: SharedDirectory(parent / NAME)])
def test_whoever_makes_a_directory_removes_what_is_left_over(tmp_path: Path, make: object) -> None:
    with process(tmp_path):
        pass
    made = make(tmp_path, "job")  # type: ignore[operator]
    if isinstance(made, OwnDirectory):
        assert names(tmp_path) == {made.path.name}
    else:  # it was used again, with what is in it
        assert (tmp_path / NAME / "deep").exists()


def test_other_files_are_not_touched(tmp_path: Path) -> None:
    others = {"holdfast-job", "holdfast-0", "holdfast-job-1234", NAME + "0", "x" + NAME}
    for name in others:
        (tmp_path / name).mkdir(mode=0o700)
    link = named("job", bytes(10))
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / link).symlink_to(tmp_path / "target")
    sweep(tmp_path)
    assert names(tmp_path) == {*others, link, "target"}


@as_root
def test_what_belongs_to_another_user_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(mode=0o700)
    os.chown(tmp_path / NAME, NOBODY, NOBODY)
    sweep(tmp_path)
    assert names(tmp_path) == {NAME}
    with pytest.raises(NotPrivateError, match=f"belongs to user {NOBODY}"):
        SharedDirectory(tmp_path / NAME)


def test_a_pipe_in_the_place_of_a_lock_does_not_block(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(mode=0o700)
    os.mkfifo(tmp_path / NAME / "lock")
    sweep(tmp_path)
    with pytest.raises(NotPrivateError, match="is not a regular file"):
        SharedDirectory(tmp_path / NAME)


def test_a_directory_without_a_lock_is_left_over(tmp_path: Path) -> None:
    """A process was killed before it had locked it, or another one wrote there after its end."""
    (tmp_path / NAME / "spark-0").mkdir(parents=True)
    (tmp_path / NAME).chmod(0o700)
    remove_left_over(tmp_path / NAME)
    assert names(tmp_path) == set()


def test_nothing_is_removed_from_under_a_process_that_has_just_made_it(tmp_path: Path) -> None:
    commands = [
        [sys.executable, "-c", BUSY, str(tmp_path), NAME, "150", str(number)] for number in range(4)
    ]
    running = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in commands]
    said = [each.communicate()[0] for each in running]
    assert said == [""] * 4
    assert [each.returncode for each in running] == [0] * 4
    sweep(tmp_path)
    assert names(tmp_path) == set()


def test_after_a_series_of_kills_nothing_is_left_but_what_is_in_use(tmp_path: Path) -> None:
    """Killed at any moment: while directories are made, used, deleted or swept."""
    choose = random.Random(14)
    command = [sys.executable, "-c", BUSY, str(tmp_path), NAME, "1000000"]
    with process(tmp_path) as alive:
        for number in range(12):
            with subprocess.Popen([*command, str(number)]) as victim:
                # it has begun once there are others than those of the live process
                while len(names(tmp_path)) < 3 and victim.poll() is None:
                    pass
                for _ in range(choose.randrange(2000)):
                    pass
                victim.kill()
        sweep(tmp_path)
        assert names(tmp_path) == {alive, NAME}
    with OwnDirectory(tmp_path, "job") as mine:
        assert names(tmp_path) == {mine.name}
    assert names(tmp_path) == set()
