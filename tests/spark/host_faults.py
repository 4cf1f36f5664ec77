"""Faults on hosts: one job, a random series of them from a seed, and a check of every count.

python -m tests.spark.host_faults                          10 faults
python -m tests.spark.host_faults --faults 200 --seed 1    a long series
python -m tests.spark.host_faults --only "host stopped"    faults of one kind

The job runs until all faults were survived, or time is up (``--minutes``), and then to its end.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.hosts import why_not
from tests.jvm import start_quickly
from tests.killing import processes
from tests.spark.fault_field import DRIVERS, HEARTBEAT, STORE, Field, field

__all__ = ["FAULTS", "Fault", "Outcome", "series"]

Heal = Callable[[], None]


# What can happen. Each fault does its harm to the field and returns what undoes it.


def slot_killed(field: Field) -> Heal:
    _kill(field.cluster.slots(field.victim()))
    return _nothing


def executor_killed(field: Field) -> Heal:
    _kill_executor(field, field.victim())
    return _nothing


def worker_killed(field: Field) -> Heal:
    k = field.victim()
    field.cluster.workers[k].kill()
    return lambda: _start_worker(field, k)


def host_rebooted(field: Field) -> Heal:
    k = field.victim()
    field.hosts.signal(k, signal.SIGKILL)
    return lambda: _start_worker(field, k)


def cable_pulled(field: Field) -> Heal:
    return _pull(field, field.victim())


def host_slow(field: Field) -> Heal:
    k = field.victim()
    field.hosts.slow_down(k)
    return lambda: field.hosts.speed_up(k)


def slot_stopped(field: Field) -> Heal:
    stopped = field.cluster.slots(field.victim())
    _signal(stopped, signal.SIGSTOP)
    return lambda: _signal(stopped, signal.SIGCONT)


def host_stopped(field: Field) -> Heal:
    k = field.victim()
    field.hosts.signal(k, signal.SIGSTOP)
    return lambda: field.hosts.signal(k, signal.SIGCONT)


def driver_killed(field: Field) -> Heal:
    field.hosts.signal(field.driver_host, signal.SIGKILL)
    field.driver.wait()
    field.start_driver(_other(field.driver_host))
    return _nothing


def driver_cut_off(field: Field) -> Heal:
    old, k = field.driver, field.driver_host
    plug_in = _pull(field, k)
    field.start_driver(_other(k))

    def heal() -> None:
        plug_in()
        field.until(lambda: old.poll() is not None, "the driver of before has ended by itself")

    return heal


def store_stopped(field: Field) -> Heal:
    field.store.stop()
    return field.store.start


def store_cut_off(field: Field) -> Heal:
    return _pull(field, STORE)


def executor_decommissioned(field: Field) -> Heal:
    k = field.victim()
    _signal(field.cluster.executors(k), signal.SIGPWR)
    return lambda: _kill_executor(field, k)


def host_decommissioned(field: Field) -> Heal:
    k = field.victim()
    field.cluster.workers[k].send_signal(signal.SIGPWR)

    def heal() -> None:
        field.hosts.signal(k, signal.SIGKILL)
        _start_worker(field, k)

    return heal


def _nothing() -> None:
    pass


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _kill(pids: list[int]) -> None:
    _signal(pids, signal.SIGKILL)


def _kill_executor(field: Field, k: int) -> None:
    slots = field.cluster.slots(k)
    _kill(field.cluster.executors(k))
    # its Python processes notice that a moment later, and work until then
    field.until(lambda: not processes().keys() & slots, "its slots have ended")


def _pull(field: Field, k: int) -> Heal:
    field.hosts.plug(k, False)
    return lambda: field.hosts.plug(k, True)


def _start_worker(field: Field, k: int) -> None:
    field.cluster.workers[k].wait()
    field.cluster.workers[k] = field.cluster.start_worker(k)


def _other(driver_host: int) -> int:
    return next(k for k in DRIVERS if k != driver_host)


@dataclass(frozen=True)
class Fault:
    """Something that happens.

    Attributes:
        strike: does it, and returns what undoes it.
        lasts: seconds until it is undone, from and to; None: until the job has new results.
        weight: how often it comes, compared with others.
        announces: it only tells what is going to happen when it is "undone".
    """

    name: str
    strike: Callable[[Field], Heal]
    lasts: tuple[float, float] | None = (0.0, 0.0)
    weight: int = 2
    announces: bool = False


FAULTS = (
    Fault("slot killed", slot_killed),
    Fault("executor killed", executor_killed),
    Fault("worker killed", worker_killed, (0.0, 3.0)),
    Fault("host rebooted", host_rebooted, (1.0, 6.0)),
    Fault("cable out for less than the heartbeat", cable_pulled, (0.2, HEARTBEAT / 2), 3),
    Fault("cable out for longer", cable_pulled, (HEARTBEAT * 2, HEARTBEAT * 5)),
    Fault("cable out until another host has taken over", cable_pulled, None),
    Fault("host slow", host_slow, (2.0, 6.0)),
    Fault("slot stopped, wakes as a zombie", slot_stopped, None),
    Fault("host stopped, wakes as a zombie", host_stopped, None),
    Fault("driver killed, started on another host", driver_killed, weight=1),
    Fault("driver cut off, started on another host", driver_cut_off, None, weight=1),
    Fault("store refuses connections", store_stopped, (1.0, 8.0)),
    Fault("store cut off", store_cut_off, (1.0, 8.0)),
    Fault("store cut off for longer than a lease", store_cut_off, (20.0, 40.0), 1),
    Fault("executor decommissioned, then killed", executor_decommissioned, (1.0, 4.0), 2, True),
    Fault("host decommissioned, then rebooted", host_decommissioned, (1.0, 4.0), 1, True),
)


@dataclass(frozen=True)
class Outcome:
    """A fault that was survived.

    Attributes:
        seconds: from the fault to the first results of after it, of all sources.
        restarts: how often the job was started again since the fault before.
    """

    fault: Fault
    seconds: float
    restarts: int


def suffer(field: Field, fault: Fault) -> Outcome:
    """Let a fault happen while the job is at work, and wait until it is survived."""
    field.results_since(time.time())
    time.sleep(field.choose.uniform(0.0, 0.6))  # anywhere between two checkpoints
    heal = fault.strike(field)
    began = time.time()
    if fault.lasts is not None:
        time.sleep(field.choose.uniform(*fault.lasts))
        heal()
    if fault.announces:
        began = time.time()
    results = field.results_since(began)
    if fault.lasts is None:
        heal()
    return Outcome(fault, results - began, field.new_restarts())


def series(field: Field, faults: int, kinds: tuple[Fault, ...] = FAULTS) -> Iterator[Outcome]:
    """Let faults happen, one after the other; which ones follows from the seed."""
    weights = [fault.weight for fault in kinds]
    for fault in field.choose.choices(kinds, weights, k=faults):
        yield suffer(field, fault)


def summary(outcomes: list[Outcome]) -> str:
    """Return the figures, by fault."""
    by_fault = defaultdict(list)
    for outcome in outcomes:
        by_fault[outcome.fault.name].append(outcome)
    lines = [f"{'':45} times  restarts  seconds: median, longest"]
    for name in (fault.name for fault in FAULTS if fault.name in by_fault):
        of = by_fault[name]
        seconds = [outcome.seconds for outcome in of]
        restarts = sum(outcome.restarts for outcome in of)
        figures = f"{statistics.median(seconds):8.1f} {max(seconds):8.1f}"
        lines.append(f"{name:45} {len(of):5} {restarts:9} {figures}")
    return "\n".join(lines)


def main() -> int:
    """Run a series; the exit code is 1 if a count was not exact, or the job did not survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="for no longer than that")
    parser.add_argument("--only", default="", help="a regular expression: faults of these names")
    parser.add_argument("--logs", type=Path, help="where to keep the logs")
    given = parser.parse_args()
    missing = why_not()
    if missing:
        print(f"no hosts: {missing}", file=sys.stderr)
        return 1
    kinds = tuple(fault for fault in FAULTS if re.search(given.only, fault.name))
    start_quickly()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        logs = given.logs or Path(scratch)
        logs.mkdir(parents=True, exist_ok=True)
        return 1 if _run(logs, given, kinds) else 0


def _run(logs: Path, given: argparse.Namespace, kinds: tuple[Fault, ...]) -> list[str]:
    outcomes: list[Outcome] = []
    began = time.monotonic()
    with field(logs, given.seed) as running:
        try:
            for outcome in series(running, given.faults, kinds):
                outcomes.append(outcome)
                now, of = time.monotonic() - began, f"{len(outcomes):3} of {given.faults}"
                what = f"{outcome.fault.name:45} {outcome.seconds:6.1f} s to new results"
                print(f"{now:7.1f} s, {of}: {what}, {outcome.restarts} restarts", flush=True)
                if now > given.minutes * 60:
                    break
            problems = running.finish()
        except AssertionError as error:
            problems = [str(error)]
        total = running.ledger.total
    print(summary(outcomes))
    print(f"{len(outcomes)} faults, {total:,} numbers, {time.monotonic() - began:.0f} s")
    print("\n".join(problems) or "every count is exact")
    return problems


if __name__ == "__main__":
    sys.exit(main())
