"""Tracebacks for users: they begin and end in the user's own code.

A frame is left out if it is Holdfast's own. Frames of Python's library, of Spark and of what runs
the program are left out before the first and after the last line of the user. Frames of other
installed packages stay, since they may be the user's. `HOLDFAST_DEBUG=1` shows all frames.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final

from holdfast.printable import counted

__all__ = [
    "DEBUG_VARIABLE",
    "full_traceback",
    "ipython_shell",
    "is_debugging",
    "name_cells",
    "rendered",
    "short_name",
    "show_user_frames",
    "showing_all_frames",
    "user_traceback",
    "without_java_stack",
]

#: the environment variable that turns all frames on
DEBUG_VARIABLE: Final = "HOLDFAST_DEBUG"
_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: where the stack begins in a message from Java; other languages may have escaped it
_JAVA_STACK: Final = re.compile(r"(?:\n|\\n)(?:\t|\\t)at ")
#: packages whose frames say nothing about a program, besides Python's library
_CARRIERS: Final = frozenset(
    (
        *("IPython", "click", "cloudpickle", "ipykernel", "msgspec", "nbclient", "py4j"),
        *("pyarrow", "pyspark"),
    )
)
_FILE: Final = re.compile(r'^(\s*)File "([^"\n]+)", line (\d+)', re.MULTILINE)


def is_debugging() -> bool:
    """Return whether all frames are to be shown."""
    return os.environ.get(DEBUG_VARIABLE, "").lower() not in ("", "0", "false", "no")


@contextmanager
def showing_all_frames(wanted: bool = True) -> Iterator[None]:
    """Show all frames in this context, if that is wanted."""
    before = os.environ.get(DEBUG_VARIABLE)
    if wanted:
        os.environ[DEBUG_VARIABLE] = "1"
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ[DEBUG_VARIABLE]
        elif before is not None:
            os.environ[DEBUG_VARIABLE] = before


def user_traceback(
    error: BaseException, *, causes: bool = True, place: tuple[str, int, str] | None = None
) -> str:
    """Return the traceback of an exception with the user's frames only.

    Without any such frame it is only the message.

    Args:
        error: the exception.
        causes: also show the exceptions that led to this one.
        place: the file, line and function to show if there are no user's frames.
    """
    shown = traceback.TracebackException.from_exception(error)
    _leave_out(shown, error)
    if place is not None and not shown.stack:
        shown.stack.append(traceback.FrameSummary(*place))
    return name_cells("".join(shown.format(chain=causes)))


def full_traceback(error: BaseException) -> str:
    """Return the traceback of an exception with all frames and causes."""
    return "".join(traceback.format_exception(error))


def show_user_frames() -> None:
    """Print an exception that ends the program with the user's frames only.

    This replaces ``sys.excepthook``, unless another library has replaced it before.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_for_users


def name_cells(text: str) -> str:
    """Return a traceback in which the files of a notebook's cells are named as ``Cell In[3]``."""
    named = _cell_names()
    if named is None:
        return text

    def name(found: re.Match[str]) -> str:
        label = named(found[2])
        return found[0] if label is None else f"{found[1]}{' '.join(label)}, line {found[3]}"

    return _FILE.sub(name, text)


def short_name(file: str) -> str:
    """Return the name of a file without its directory; that of a notebook's cell."""
    named = _cell_names()
    label = None if named is None else named(file)
    return os.path.basename(file) if label is None else " ".join(label)


def ipython_shell() -> Any | None:
    """Return the shell of the notebook or of IPython in which this program runs, or None."""
    ipython: Any = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _cell_names() -> Callable[[str], tuple[str, str] | None] | None:
    """Return IPython's function that names the file of a cell, if this is a notebook."""
    return getattr(getattr(ipython_shell(), "compile", None), "format_code_name", None)


def _print_for_users(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if is_debugging() or issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr.write(rendered(error))


def rendered(error: BaseException) -> str:
    """Return what a user sees of an exception that ends the program."""
    render = getattr(error, "_render_traceback_", None)
    if render is not None:
        return "\n".join(render()) + "\n"
    if is_debugging():
        return full_traceback(error)
    return user_traceback(error) + _note(error)


def _note(error: BaseException) -> str:
    """Return a line about the frames after the user's last one, if there are any."""
    stack = traceback.extract_tb(error.__traceback__)
    last = _kept(error, stack)[-1:]
    below = next((n for n, frame in enumerate(reversed(stack)) if [frame] == last), 0)
    if not below:
        return ""
    return (
        f"({counted(below, 'frame')} left out after the last line; {DEBUG_VARIABLE}=1 shows all)\n"
    )


def _leave_out(shown: traceback.TracebackException, error: BaseException | None) -> None:
    """Remove frames from an exception, and from those that led to it or are part of it."""
    if error is None:
        return
    shown.stack = traceback.StackSummary.from_list(_kept(error, shown.stack))
    for inner, cause in (
        (shown.__cause__, error.__cause__),
        (shown.__context__, error.__context__),
    ):
        if inner is not None:
            _leave_out(inner, cause)
    members: Sequence[BaseException] = getattr(error, "exceptions", ())
    for part, member in zip(getattr(shown, "exceptions", None) or (), members, strict=False):
        _leave_out(part, member)


def _kept(error: BaseException, stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Return the user's frames of a stack."""
    frames = [
        (summary, frame)
        for summary, (frame, _) in zip(stack, traceback.walk_tb(error.__traceback__), strict=False)
        if not _is_ours(frame)
    ]
    own = [place for place, (_, frame) in enumerate(frames) if not _is_carrier(frame)]
    if own:
        frames = frames[own[0] : own[-1] + 1]
    return [summary for summary, _ in frames]


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGE)


def _is_carrier(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package in _CARRIERS or package in sys.stdlib_module_names


def without_java_stack(message: str) -> str:
    """Return a message from Java, or from a library that passes it on, up to its stack."""
    return _JAVA_STACK.split(message, maxsplit=1)[0].strip()
