"""What the commands share: where results go, lists of names, and lines about progress."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "HOME",
    "ROOT",
    "Progress",
    "add_json_option",
    "names",
    "note",
    "numbers",
    "warn_if_busy",
]

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"

#: Above this load average before a run, other programs change its rates.
_IDLE = 0.5


def names(known: Sequence[str], what: str) -> type:
    """Return an argparse type for a list of names between commas."""

    class Names(list[str]):
        def __init__(self, text: str) -> None:
            found = [name.strip() for name in text.split(",") if name.strip()]
            for name in found:
                if name not in known:
                    raise argparse.ArgumentTypeError(
                        f"no {what} '{name}'; there are: {', '.join(known)}"
                    )
            super().__init__(found)

    return Names


def numbers(text: str) -> list[int]:
    """Return the numbers of a list between commas; an argparse type."""
    try:
        found = [int(number) for number in text.split(",") if number]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        message = f"'{text}' is no list of numbers above zero, such as 16,64"
        raise argparse.ArgumentTypeError(message)
    return found


def add_json_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Let a command be told where its results go."""
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        default=HOME / f"{name}.json",
        help=f"where the results go; .bench/{name}.json unless given",
    )


def note(text: str) -> None:
    """Print a note on the error output."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def warn_if_busy(load: float) -> None:
    """Print a note if the load average shows that other programs are running."""
    if load > _IDLE:
        note(f"the machine is busy (load {load:.1f}): the rates will mislead")


class Progress:
    """Lines on the error output about one program; on a terminal, also the seconds so far."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._live = sys.stderr.isatty()
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line."""
        print(f"{self._label}: {text}", file=sys.stderr, flush=True)

    def start(self) -> None:
        """Count the seconds from now on: what came before only prepared the run."""
        self._started = time.monotonic()
        if not self._live:
            self.say("running")

    def tick(self, seconds: float) -> None:
        """Show how long the program has been running."""
        if self._live:
            print(f"\r{self._label}: {seconds:.0f} s", end="", file=sys.stderr, flush=True)

    def end(self, outcome: str) -> None:
        """Print the line that replaces the seconds."""
        print("\r" if self._live else "", end="", file=sys.stderr)
        self.say(f"{outcome} ({time.monotonic() - self._started:.0f} s)")
