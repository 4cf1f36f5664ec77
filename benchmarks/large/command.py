"""The command ``python -m benchmarks large``: state in RocksDB on two hosts, by its size.

For each size a job is filled, a part of its keys is written again, a slot is killed, a host is
replaced by an empty one, the job is rescaled from two subtasks to one and back, and the program is
started again. All bytes that are read from the checkpoint storage and written to it are counted by
the storage itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.console import add_json_option, note, numbers, warn_if_busy
from benchmarks.large.figures import MB, Row, WrongResult, render
from benchmarks.report import write_json

if TYPE_CHECKING:
    from benchmarks.large.trial import Trial

__all__ = ["main", "parse"]

#: how many times the state must fit on the disk: in databases, in the storage, and once more while
#: it is rescaled
_ROOM = 5
#: parts of all keys that are written again, one in so many
_CHANGES = (1000, 100, 10)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks large",
        description="Measures checkpoints, recovery and rescaling of large state on two hosts.",
    )
    parser.add_argument(
        "--sizes",
        type=numbers,
        metavar="A,B",
        help="sizes of the state in MB; 100 unless given",
    )
    parser.add_argument("--full", action="store_true", help="sizes 1000,3000,10000")
    parser.add_argument(
        "--value", type=int, default=8192, metavar="BYTES", help="of each key; 8192 unless given"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("/var/tmp"),
        help="where the storage keeps its objects; /var/tmp unless given",
    )
    add_json_option(parser, "large")
    options = parser.parse_args(arguments)
    options.sizes = options.sizes or ([1000, 3000, 10_000] if options.full else [100])
    return options


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = parse(arguments)
    # Late: the packages of the tests are needed, and other commands run without them.
    from tests.hosts import why_not

    missing = why_not()
    if missing:
        note(f"nothing can be measured: {missing}")
        return 1
    # hosts outlive a process that does not come to its end
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    warn_if_busy(os.getloadavg()[0])
    found: dict[int, list[Row]] = {}
    code = 0
    for size in options.sizes:
        free = shutil.disk_usage(options.directory).free / MB
        if free < _ROOM * size:
            note(f"{size:,} MB left out: they need {_ROOM * size:,} MB of disk, {free:,.0f} free")
            code = 1
            continue
        print(f"{size:,} MB", file=sys.stderr, flush=True)
        try:
            _measure(size, options, found.setdefault(size, []))
        except WrongResult as error:
            note(f"{size:,} MB: {error}")
            code = 1
        options.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(options.json, {str(mb): [asdict(row) for row in found[mb]] for mb in found})
    print(render((mb, row) for mb, rows in found.items() for row in rows), flush=True)
    print(f"written to {options.json}", file=sys.stderr)
    return code


def _measure(size: int, options: argparse.Namespace, rows: list[Row]) -> None:
    from benchmarks.large.trial import Trial
    from tests.hosts import hosts

    keys = size * MB // options.value
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-large-", dir=options.directory) as folder,
        hosts(4) as made,
    ):
        trial = Trial(made, Path(folder), keys, options.value, rows)
        try:
            _steps(trial, keys)
        finally:
            trial.close()


def _steps(trial: Trial, keys: int) -> None:
    trial.start("start", local=True)
    trial.write("fill", range(keys))
    for part in _CHANGES:
        trial.write(f"1/{part:,} of all keys written", range(0, keys, part))
    trial.kill_slot("slot killed")
    trial.check()
    trial.replace_host("host replaced by an empty one")
    trial.check()
    trial.rescale("2 to 1", 1)
    trial.rescale("1 to 2", 2)
    trial.check()
    trial.end()
    trial.start("program started again, no local recovery", local=False)
    trial.check()
    trial.kill_slot("slot killed, no local recovery")
    trial.check()
    trial.end()
