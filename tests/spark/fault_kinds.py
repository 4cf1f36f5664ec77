"""What can happen to the hosts of a cluster, for `tests.spark.host_faults`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from holdfast.torture.processes import processes
from tests.spark.fault_field import DRIVERS, HEARTBEAT, STORE, Field

__all__ = ["FAULTS", "Fault"]

Heal = Callable[[], None]


# Each fault does its harm to the field and returns what undoes it.


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
    Fault("cable out for half a minute", cable_pulled, (30.0, 30.0), 1),
    Fault("cable out until another host has taken over", cable_pulled, None),
    Fault("host slow", host_slow, (2.0, 6.0)),
    Fault("slot stopped, wakes as a zombie", slot_stopped, None),
    Fault("host stopped, wakes as a zombie", host_stopped, None),
    Fault("driver killed, started on another host", driver_killed, weight=1),
    Fault("driver cut off, started on another host", driver_cut_off, None, weight=1),
    Fault("store refuses connections", store_stopped, (1.0, 8.0)),
    Fault("store cut off", store_cut_off, (1.0, 8.0)),
    Fault("store cut off for longer than a lease", store_cut_off, (20.0, 40.0), 1),
    Fault("store cut off for a minute", store_cut_off, (60.0, 60.0), 1),
    Fault("executor decommissioned, then killed", executor_decommissioned, (1.0, 4.0), 2, True),
    Fault("host decommissioned, then rebooted", host_decommissioned, (1.0, 4.0), 1, True),
)
