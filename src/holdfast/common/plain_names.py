"""Checks of file names that were read from a file, before they are used in a path.

A checkpoint, a savepoint or the state of a sink contains file names. Its author must not control
where this process reads, writes or deletes. So a name must be a *plain name*, which stays in the
directory in which it is used, or a *plain path*, whose parts are plain names.

The structures into which files are decoded check their names themselves, so code that uses them
need not.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["plain_name", "plain_path"]

#: in bytes of UTF-8; the limits of Linux and macOS
_LONGEST: Final = 255
_LONGEST_PATH: Final = 1023
_UNSAFE: Final = re.compile(r"[/\x00-\x1f\x7f-\x9f]")


def plain_name(name: str) -> str:
    """Return the name of a file if it is a plain name.

    Raises:
        ValueError: when it is empty, ``.``, ``..`` or too long, or has a separator or a control
            character in it.
    """
    if name in ("", ".", "..") or _UNSAFE.search(name) or _size(name) > _LONGEST:
        message = f"{_shown(name)} is not the plain name of a file"
        raise ValueError(message)
    return name


def plain_path(path: str) -> str:
    """Return a relative path if it cannot leave the directory in which it is used.

    Raises:
        ValueError: when one of its parts is not a plain name, or it is too long.
    """
    try:
        if _size(path) > _LONGEST_PATH:
            raise ValueError
        for name in path.split("/"):
            plain_name(name)
    except ValueError:
        message = f"{_shown(path)} is not a plain relative path"
        raise ValueError(message) from None
    return path


def _size(name: str) -> int:
    return len(name.encode(errors="surrogatepass"))


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}…")
