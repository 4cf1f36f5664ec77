"""Names that were read from a file, checked before a path is made of one.

A checkpoint, a savepoint or the state of a sink names files. Whoever wrote it must not decide
where this process reads, writes or deletes. So a name is a *plain name*, which stays in the
directory that it is used in, or a *plain path*, whose parts are plain names.

The structures that files are decoded into check their names themselves, so that code which has
one need not.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["plain_name", "plain_path"]

#: in bytes of UTF-8; what Linux and macOS allow
_LONGEST: Final = 255
_LONGEST_PATH: Final = 1023
_UNSAFE: Final = re.compile(r"[/\x00-\x1f\x7f-\x9f]")


def plain_name(name: str) -> str:
    """Return the name of a file, if it can only be a name.

    Raises:
        ValueError: when it is empty, ``.``, ``..`` or too long, or has a separator or a control
            character in it.
    """
    if name in ("", ".", "..") or _UNSAFE.search(name) or _size(name) > _LONGEST:
        message = f"{_shown(name)} is not the plain name of a file"
        raise ValueError(message)
    return name


def plain_path(path: str) -> str:
    """Return a relative path, if it can only lead to somewhere below where it begins.

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
