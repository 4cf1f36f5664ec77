"""The events in files, and the proof that what came of them is right.

A peer has its own environment, without what the example needs; so it runs this module as a program,
with the interpreter that the benchmark was started with: `ask`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import PYTHON

if TYPE_CHECKING:
    from examples.orders.shop import Shop

__all__ = ["PEERS_OUTPUTS", "ask", "check", "event_files", "make", "shop_of"]

ROOT = Path(__file__).resolve().parent.parent.parent / ".bench" / "orders"
#: the outputs that a peer has, too; PyFlink has neither operator state nor sinks in Python, and so
#: no batches
PEERS_OUTPUTS = 7


def shop_of(events: int) -> Shop:
    """The shop with about so many events."""
    from examples.orders.shop import Shop

    shop = Shop(disorder=True, lateness=0.01, duplicates=0.02, orders_per_slice=5)
    return replace(shop, slices=shop.slices_for(events))


def make(events: int, files: int) -> Path:
    """Write the events unless they are there; returns the directory of the files."""
    directory = ROOT / f"{events}-events-{files}-files"
    if directory.exists():
        return directory
    ROOT.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=ROOT))
    for number in range(files):
        _write(shop_of(events), draft / f"{number:03d}.jsonl", number, files)
    try:
        draft.rename(directory)
    except OSError:  # another process was faster
        shutil.rmtree(draft)
    return directory


def _write(shop: Shop, path: Path, number: int, files: int) -> None:
    """Write one of the files: some partitions of the shop, slice by slice."""
    from examples.orders.files import encode_event
    from examples.orders.shop import PARTITIONS, deliveries

    with path.open("wb") as file:
        for each in range(shop.slices or 0):
            for partition in range(number, PARTITIONS, files):
                file.writelines(map(encode_event, deliveries(shop, partition, each)))


def event_files(directory: Path) -> list[Path]:
    """The files of the events."""
    return sorted(directory.iterdir())


def check(events: int, output: str | Path, outputs: int | None = None) -> str:
    """Compare the first outputs, or all, with the batch computation; returns what differs."""
    from benchmarks.program import PARALLELISM
    from examples.orders.inventory import INITIAL_STOCK
    from examples.orders.verify import table, verify

    checks = verify(shop_of(events), output, initial_stock=INITIAL_STOCK, subtasks=PARALLELISM)[
        :outputs
    ]
    return "" if all(each.passed for each in checks) else table(checks)


def ask(what: str, *arguments: object) -> str:
    """Run this module with Holdfast's interpreter; returns what it says."""
    command = [os.environ[PYTHON], "-m", "benchmarks.orders.data", what, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def _main(what: str, events: str, argument: str) -> None:
    if what == "make":
        print(make(int(events), int(argument)))
    else:
        print(check(int(events), Path(argument), PEERS_OUTPUTS))


if __name__ == "__main__":
    _main(*sys.argv[1:])
