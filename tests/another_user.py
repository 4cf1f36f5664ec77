"""A second user of the machine, who tries things: calls in a child process with another user id."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["NOBODY", "as_another_user", "as_root", "common_place", "in_child", "refused"]

#: the user id of ``nobody``
NOBODY = 65534

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def as_another_user(act: Callable[[], object]) -> str:
    """Call something as `NOBODY`; returns the name of the exception that it raised, or nothing."""

    def change_and_act() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        act()

    return in_child(change_and_act)


def in_child(act: Callable[[], object]) -> str:
    """Call something in a copy of this process; returns as `as_another_user` does.

    It is to do little more than to ask the system for something: other threads are not copied.
    """
    answer, mouth = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of what the docstring says
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _be_the_child(act, mouth)
    os.close(mouth)
    with os.fdopen(answer) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def refused(act: Callable[[], object]) -> bool:
    """Return whether the system does not let another user do something."""
    return as_another_user(act) == "PermissionError"


def _be_the_child(act: Callable[[], object], mouth: int) -> NoReturn:
    try:
        act()
    except BaseException as error:
        os.write(mouth, type(error).__name__.encode())
    finally:
        os._exit(0)


@contextmanager
def common_place() -> Iterator[Path]:
    """A directory like ``/tmp``, in which all users can make files."""
    place = Path(tempfile.mkdtemp(prefix="holdfast-common-"))
    try:
        place.chmod(0o1777)
        if as_another_user(lambda: (place / "probe").touch()):
            pytest.skip(f"other users do not get to {place}")
        yield place
    finally:
        # NB: a database that nobody uses any more deletes its own files when it is collected
        gc.collect()
        shutil.rmtree(place, ignore_errors=True)
