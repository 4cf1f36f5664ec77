"""A second user of the machine, who tries things: calls in a child process with another user id."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["NOBODY", "as_another_user", "as_root", "common_place", "refused"]

#: the user id of ``nobody``
NOBODY = 65534

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def as_another_user(act: Callable[[], object]) -> str:
    """Call something as `NOBODY`; returns the name of the exception that it raised, or nothing."""
    answer, mouth = os.pipe()
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
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        try:
            act()
        except Exception as error:
            os.write(mouth, type(error).__name__.encode())
    except BaseException:
        traceback.print_exc()
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
        shutil.rmtree(place)
