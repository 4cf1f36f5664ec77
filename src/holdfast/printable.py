"""Text for logs and terminals: nothing in a name can forge a line, or control a terminal.

Names of jobs, operators and states may have any characters, as in Flink, and so may the text of an
exception or a path. In a log a line break in one of them would begin a line that looks like another
record; in a terminal an escape sequence would be carried out. So what is written there has these
characters escaped, as Python's `repr` shows them. Names themselves, in files and in answers of the
REST API, are data and stay as they are.
"""

from __future__ import annotations

import codecs
import logging
import re
from typing import Final

__all__ = ["get_logger", "printable", "printable_lines"]

#: Unicode's controls, breaks of lines and paragraphs, what changes the direction of writing or
#: cannot be seen, and halves of pairs that cannot be encoded.
_UNSAFE: Final = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
# NB: loaded now: a process without file descriptors cannot load it when it has something to say
_UNICODE_ESCAPE: Final = codecs.lookup("unicode_escape")
_in_line: Final = re.compile(f"[{_UNSAFE}]")
_in_lines: Final = re.compile(f"(?![\n\t])[{_UNSAFE}]")


def printable(text: str) -> str:
    r"""Return a text as one line, without characters that control anything.

    >>> printable("orders\n2026-01-01 all is well\x1b[2J")
    'orders\\n2026-01-01 all is well\\x1b[2J'
    """
    return text if text.isascii() and text.isprintable() else _in_line.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Return a text in its lines, without characters that control anything else."""
    return _in_lines.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return _UNICODE_ESCAPE.encode(found[0])[0].decode()


def counted(number: int, noun: str) -> str:
    """Return a number of things: ``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module; each of its records is a line, and tracebacks are indented."""
    logger = logging.getLogger(name)
    logger.addFilter(_keep_to_a_line)
    return logger


def _keep_to_a_line(record: logging.LogRecord) -> bool:
    try:
        message = record.getMessage()
    except Exception:
        return True  # the handlers tell what is wrong with it
    record.msg, record.args = printable(message), None
    if record.exc_info and not record.exc_text:
        trace = logging.Formatter().formatException(record.exc_info)
        record.exc_text = "\n".join(f"  {printable(line)}" for line in trace.split("\n"))
    return True
