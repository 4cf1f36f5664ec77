"""Hosts that come and go, as spot instances do, for `tests.spark.host_faults`.

Each has one core, and the job wants all of them: whenever one is gone, the job goes on with fewer
slots, and with more when one has come. A host that comes is another machine, with an empty disk.
"""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.spark.fault_field import WORKERS, Field, Shape

__all__ = ["SHAPE", "Change", "changes", "rescales"]

SHAPE = Shape(
    subtasks=len(WORKERS),
    cores=1,
    settings=("holdfast.slots.wait=4s", "holdfast.slots.stable=3s", "holdfast.slots.min=1"),
)
#: seconds from one change to the next, at least and at most: some come before the last is survived
GAP = (1.0, 25.0)
#: how often the next change comes only when the job runs on all hosts that are there
PATIENT = 0.6
#: how often a host comes, if one is gone
COMES = 0.6
#: seconds between the notice that a host is going and its end
NOTICE = 2.0


@dataclass(frozen=True)
class Change:
    """A host came or went.

    Attributes:
        seconds: until there were new results; None if the next change came before.
    """

    name: str
    seconds: float | None


def changes(field: Field, seconds: float, tell: Callable[[str], None]) -> Iterator[Change]:
    """Let hosts come and go, for so long; which ones, and when, follows from the seed.

    In the end all are there.
    """
    field.results_since(time.time())
    ends = time.monotonic() + seconds
    gone: set[int] = set()
    while time.monotonic() < ends:
        k = _choose(field, gone)
        name, change = ("host comes", _come) if k in gone else field.choose.choice(_WAYS_TO_GO)
        gone ^= {k}
        there = len(WORKERS) - len(gone)
        tell(f"{name} ({there} are there)")
        change(field, k)
        yield Change(name, _survive(field, there))
    for k in sorted(gone):
        _come(field, k)


def rescales(field: Field) -> tuple[int, int]:
    """Return how often the job went on with fewer slots, and with more."""
    return field.said("there are fewer task slots"), field.said("there are more task slots")


def _choose(field: Field, gone: set[int]) -> int:
    """Return the host that comes, or the one that goes."""
    there = set(WORKERS) - gone
    comes = gone and (not there or field.choose.random() < COMES)
    return field.choose.choice(sorted(gone if comes else there))


def _survive(field: Field, there: int) -> float | None:
    """Wait until the next change is due, and sometimes until the job uses all hosts there are."""
    began = time.time()
    gap, patient = field.choose.uniform(*GAP), field.choose.random() < PATIENT
    if there and patient:
        field.results_since(began)
        field.until(lambda: _width(field) == there, f"the job runs on {there} slots")
        field.results_since(time.time())
    while time.time() < began + gap:
        field.check("the next host comes or goes")
        time.sleep(0.1)
    results = field.has_results_since(began)
    return None if results is None else results - began


def _width(field: Field) -> int:
    """Return on how many slots the job runs."""
    time.sleep(0.3)  # the log is long
    widths = re.findall(r"runs on (\d+) task slots", field.log)
    return int(widths[-1]) if widths else SHAPE.subtasks


# Ways to go, and how to come


def _vanish(field: Field, k: int) -> None:
    field.hosts.signal(k, signal.SIGKILL)


def _give_notice(field: Field, k: int) -> None:
    field.cluster.workers[k].send_signal(signal.SIGPWR)
    time.sleep(NOTICE)
    _vanish(field, k)


def _cut_off(field: Field, k: int) -> None:
    field.hosts.plug(k, False)


_WAYS_TO_GO = (
    ("host gone", _vanish),
    ("host gone after a notice", _give_notice),
    ("host cut off for good", _cut_off),
)


def _come(field: Field, k: int) -> None:
    _vanish(field, k)  # what is cut off may still run
    field.cluster.workers[k].wait()
    for left in field.hosts.temporary(k).iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    field.hosts.plug(k, True)
    field.cluster.workers[k] = field.cluster.start_worker(k)
