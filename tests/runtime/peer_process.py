"""A process at which others of a job can connect, as a worker is: gives back what it is told.

Standard input has orders for it, a line each; standard output the answers.
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress

import msgspec

from holdfast.runtime.network import peers
from holdfast.runtime.network.peers import Line, listen

_held: list[int] = []


def _echo(line: Line) -> None:
    while True:
        line.say(line.hear())


def _answer(text: str) -> None:
    print(text, flush=True)


def _take_all_descriptors() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    with suppress(OSError):
        while True:
            _held.append(os.open(os.devnull, os.O_RDONLY))


def main() -> None:
    """Listen until standard input ends."""
    # NB: no deadline helps those who wait behind a stranger
    peers._DEADLINE = 1e6  # type: ignore[misc]
    listener = listen(_echo, sys.argv[1])
    _answer(msgspec.json.encode(listener.address).decode())
    for order in sys.stdin:
        if order == "take all descriptors\n":
            _take_all_descriptors()
        while order == "give them back\n" and _held:
            os.close(_held.pop())
        _answer("done")


if __name__ == "__main__":
    main()
