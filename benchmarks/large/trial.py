"""One state size: a job is filled, changed, killed, rescaled and started again, on two hosts.

Hosts are those of `tests.hosts`: the driver and Spark's master on the first, a worker with one core
on the second and the third, and the checkpoint storage on the fourth. They share nothing else; the
orders to the job, and its results, are files of the benchmark in a folder that all can see.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.console import ROOT
from benchmarks.large.figures import Row, WrongResult
from benchmarks.large.job import lines_of
from benchmarks.large.store import Store
from tests.cluster import Cluster, s3_settings
from tests.hosts import Hosts

__all__ = ["Trial"]

_T = TypeVar("_T")

_STORE, _PORT = 4, 9000
_SETTINGS = (
    "holdfast.engine=resident",
    "state.backend.type=rocksdb",
    "execution.checkpointing.dir=s3a://kept/jobs",
    "execution.checkpointing.interval=5s",
    "execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION",
    "restart-strategy.type=fixed-delay",
    "restart-strategy.fixed-delay.attempts=3",
    "restart-strategy.fixed-delay.delay=0s",
    # the machine is small, and what is measured is not how soon a loss is noticed
    "holdfast.heartbeat.timeout=60s",
)
#: seconds after which something that is waited for is not to come
_PATIENCE = 1800.0
#: between two looks, in seconds
_PAUSE = 0.05


class Trial:
    """A job on these hosts, and what is done to it."""

    def __init__(self, made: Hosts, folder: Path, keys: int, value: int, rows: list[Row]) -> None:
        """Start the cluster and the storage; the state is that of so many values of that size.

        ``folder``: of the storage. ``rows``: gets one for each step.
        """
        self._rows = rows
        self._hosts = made
        self._folder = made.common / "benchmark"
        self._folder.mkdir()
        self._keys, self._value = keys, value
        self._store = Store(made.listen(_STORE, _PORT), folder)
        self._cluster = Cluster(made, self._folder, workers=(2, 3))
        self._log = self._folder / "job.log"
        self._orders: list[range] = []
        self._asked = 0
        self._memory = _Memory(self._cluster)

    # Steps

    def start(self, name: str, local: bool) -> None:
        """Start the program; from the last checkpoint if there is one."""
        self._asked = 0
        (self._folder / "questions").unlink(missing_ok=True)
        told = f"execution.state-recovery.from-local={str(local).lower()}"
        program = [str(ROOT / "benchmarks/large/job.py"), str(self._folder), str(self._value)]
        with self._measured(name) as row:
            began = time.time()
            settings = (*_SETTINGS, *s3_settings(_STORE), told)
            self._job = self._cluster.submit(1, settings, program, self._log)
            self._memory.driver = self._job.pid
            if self._orders:
                self._await_result(row, began)

    def write(self, name: str, keys: range) -> None:
        """Write the values of some keys, and wait for a checkpoint that has them."""
        with self._measured(name) as row:
            began = time.time()
            number = len(self._orders)
            self._orders.append(keys)
            with (self._folder / "orders").open("a") as orders:
                orders.write(f"{keys.start} {keys.stop} {keys.step}\n")
            self._until((self._folder / f"done-{number}").exists, f"order {number} was carried out")
            row.parts["written"] = time.time() - began
            self._await_checkpoint()
            row.seconds = time.time() - began
            row.changed = len(keys) * self._value

    def kill_slot(self, name: str) -> None:
        """Kill the Python process of a slot (SIGKILL), and wait for the first result after it."""
        with self._measured(name) as row:
            victim = self._cluster.slots(3)[0]
            began = time.time()
            os.kill(victim, signal.SIGKILL)
            self._await_result(row, began)

    def replace_host(self, name: str) -> None:
        """Kill all processes of a host, let another one with an empty disk have its place."""
        with self._measured(name) as row:
            began = time.time()
            self._hosts.signal(3, signal.SIGKILL)
            self._cluster.workers[3].wait()
            for left in self._hosts.temporary(3).iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            self._cluster.workers[3] = self._cluster.start_worker(3)
            self._await_result(row, began)

    def rescale(self, name: str, wide: int) -> None:
        """Give the job another parallelism; then wait for a checkpoint, in a row of its own."""
        with self._measured(name) as row:
            began = time.time()
            command = [sys.executable, "-m", "holdfast", "rescale", "large", str(wide)]
            asked = self._hosts.start(1, command)
            text, _ = asked.communicate(timeout=_PATIENCE)
            if asked.returncode:
                raise WrongResult(f"the job was not rescaled: {text}")
            self._await_result(row, began)
        with self._measured(f"first checkpoint after {name}") as row:
            began = time.time()
            self._await_checkpoint()
            row.seconds = time.time() - began

    def check(self) -> None:
        """Check what was read, as often as it was written by then or later."""
        expected = [0] * self._keys
        for keys in self._orders:
            for key in keys:
                expected[key] += 1
        began, seen = time.time(), 0
        while seen < 100:
            seen = 0
            for _, results in self._results():
                for at, key, count, whole in results:
                    if not whole:
                        raise WrongResult(f"the value of key {key} is not as it was written")
                    if at > began + 1 and count != expected[key]:
                        raise WrongResult(f"key {key} has {count} writes, not {expected[key]}")
                    seen += at > began + 1
            time.sleep(_PAUSE)
            self._check_job()

    def end(self) -> None:
        """End the job; its last checkpoint stays."""
        with (self._folder / "questions").open("a") as questions:
            questions.write("end\n")
        self._job.wait(_PATIENCE)

    def close(self) -> None:
        """Stop the storage."""
        self._memory.close()
        self._store.close()

    # What the job says

    def _ask(self) -> dict[str, Any]:
        """Return what the history of the job says."""
        with (self._folder / "questions").open("a") as questions:
            questions.write("?\n")
        self._asked += 1
        answers: list[str] = []

        def answered() -> bool:
            lines = self._log.read_text(errors="replace").splitlines()
            answers[:] = [line for line in lines if line.startswith("ANSWER ") and line[-1] == "}"]
            return len(answers) >= self._asked

        self._until(answered, "the program has answered")
        found: dict[str, Any] = json.loads(answers[self._asked - 1].removeprefix("ANSWER "))
        return found

    def _results(self) -> Iterator[tuple[float, list[tuple[float, int, int, bool]]]]:
        """Yield when each sink was opened, and its results."""
        for path in self._folder.glob("*.results"):
            lines = [line.split() for line in lines_of(path)]
            if lines:
                results = [(float(a), int(k), int(c), w == "1") for a, k, c, w in lines[1:]]
                yield float(lines[0][0]), results

    def _await_checkpoint(self) -> None:
        """Wait for a checkpoint that begins from now on and completes."""
        began = time.time()

        def complete() -> bool:
            found = self._ask()["checkpoints"]
            return any(
                each["began"] > began and each["ended"] and not each["failure"] for each in found
            )

        self._until(complete, "a checkpoint was complete")

    def _await_result(self, row: Row, began: float) -> None:
        """Wait for a result of the next attempt; fill in what it took."""

        def first() -> float:
            times = [r[0][0] for opened, r in self._results() if opened > began and r]
            return min(times, default=0.0)

        self._until(first, "there was a result")
        row.seconds = first() - began
        self._until(lambda: self._ask()["attempts"][-1]["loaded"], "the state was loaded")
        attempt = self._ask()["attempts"][-1]
        row.local = attempt["loaded"][1]
        row.parts["attempt"] = attempt["started"] - began
        row.parts["loaded"] = attempt["loaded"][2] - began
        row.parts["stored"] = attempt["loaded"][0]

    # Waiting and measuring

    @contextmanager
    def _measured(self, name: str) -> Iterator[Row]:
        row = Row(name)
        print(f"  {name} ...", file=sys.stderr, flush=True)
        self._memory.begin()
        sent, received = self._store.sent, self._store.received
        yield row
        row.sent, row.received = self._store.sent - sent, self._store.received - received
        row.slots_mb, row.driver_mb = self._memory.most()
        if self._orders:
            complete = [c for c in self._ask()["checkpoints"] if c["ended"] and not c["failure"]]
            row.state = complete[-1]["size"] if complete else 0
        print(f"  {row}", file=sys.stderr, flush=True)
        self._rows.append(row)

    def _until(self, condition: Callable[[], _T], what: str) -> _T:
        deadline = time.monotonic() + _PATIENCE
        while not (found := condition()):
            self._check_job()
            if time.monotonic() > deadline:
                raise WrongResult(f"{_PATIENCE:.0f} s passed before {what}")
            time.sleep(_PAUSE)
        return found

    def _check_job(self) -> None:
        if self._job.poll() is not None:
            text = self._log.read_text(errors="replace")
            raise WrongResult(f"the program has ended: {text[-3000:]}")


class _Memory:
    """The most memory that a slot, and the driver, have had; looked at twice a second."""

    def __init__(self, cluster: Cluster) -> None:
        self.driver: int | None = None
        self._cluster = cluster
        self._slots = self._driver = 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Forget what was before."""
        self._slots = self._driver = 0.0

    def most(self) -> tuple[float, float]:
        """Return the most since then, in MB."""
        return self._slots, self._driver

    def _run(self) -> None:
        while not self._closed.wait(0.5):
            with suppress(OSError, KeyError):
                slots: Sequence[int] = [*self._cluster.slots(2), *self._cluster.slots(3)]
                self._slots = max([self._slots, *map(_resident_mb, slots)])
                if self.driver is not None:
                    self._driver = max(self._driver, _resident_mb(self.driver))

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        self._thread.join()


def _resident_mb(pid: int) -> float:
    """Return the resident memory of a process that is its own, without pages of files."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(fields["RssAnon"].split()[0]) / 1024
