"""The barrier job of an attempt; each of its tasks runs a slot."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark import BarrierTaskContext, InheritableThread
from pyspark.sql import SparkSession

from holdfast.common.time import wall_clock
from holdfast.driver.outcome import LostSlotError
from holdfast.errors import JobExecutionError
from holdfast.filesystem import file_system_of
from holdfast.printable import get_logger
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.sockets import ip_of, own_ip
from holdfast.runtime.resident.outbox import Post
from holdfast.runtime.resident.slot import Make, Slot
from holdfast.runtime.resident.subtask import ResidentSubtask
from holdfast.runtime.worker.job_code import JobCode
from holdfast.spark.lacking import lacking
from holdfast.spark.worker import ShippedJob
from holdfast.state.local_copies import copies_of
from holdfast.state.storage.directory import DirectoryStateStorage

#: The interval of Python's thread switches, in seconds. With 0.5 ms a keyed count is
#: a tenth to a fifth slower; with Python's default of 5 ms it is no faster, and blocks wait longer.
_SWITCH: Final = 0.002

#: how long cancelled tasks may take to end, in seconds
_CANCEL: Final = 30.0

#: Spark's messages for a lost executor, and for a task whose process has ended
_LOST: Final = re.compile(r"ExecutorLostFailure .*|Python worker exited unexpectedly.*")

#: the last line of a Python traceback
_RAISED: Final = re.compile(r"(?!py4j|org\.|java\.|at )[A-Za-z_][\w.]*(Error|Exception|Exit): ")

_logger = get_logger(__name__)


# NB: no repr, which would show the key of the job
@dataclass(frozen=True, repr=False)
class SlotTask:
    """The function of each task of the barrier job.

    Attributes:
        job: the job to run.
        attempt: its number.
        driver: the address on which the driver listens.
        driver_host: the name or address of the driver's host, for executors.
        local: all slots are on the driver's machine.
        heartbeat: the seconds without messages after which a process is considered lost.
    """

    job: ShippedJob
    attempt: int
    driver: Address
    driver_host: str
    local: bool
    heartbeat: float

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Run a slot until the attempt has ended."""
        from holdfast.spark.worker import garbage, known_jobs

        number = BarrierTaskContext.get().partitionId()
        job = known_jobs.get(self.job)
        known_jobs.check(job)
        sys.setswitchinterval(_SWITCH)
        garbage.expect_state()
        make = self._maker(job)
        slot = Slot(job, self.attempt, number, make, self.heartbeat, garbage.spare_beside)
        driver = self._find_driver()
        slot.serve(driver, driver.host if self.local else own_ip())
        yield number

    def _find_driver(self) -> Address:
        """Return the driver's address as seen from this host."""
        host = ip_of(self.driver_host, "spark.driver.host", ":" in self.driver.host)
        return Address(self.driver.key, host=host, port=self.driver.port)

    def _maker(self, job: JobCode) -> Make:
        files, path = file_system_of(job.state_directory)
        storage = DirectoryStateStorage(path, files)
        # NB: a copy on the same disk as the storage is useless
        copied = files.is_remote or not self.local

        def make(level: int, number: int, post: Post) -> ResidentSubtask:
            copies = copies_of(job.state, job.key, level, number) if copied else None
            return ResidentSubtask(
                job, level, number, self.attempt, storage, wall_clock, post, copies=copies
            )

        return make


class BarrierJob:
    """A Spark job whose tasks all run at the same time, for as long as an attempt lasts."""

    def __init__(self, session: SparkSession, group: str, task: SlotTask, width: int) -> None:
        """Create the job without starting it."""
        self._session = session
        self._group = group
        self._task = task
        self._width = width
        self._ended = threading.Event()

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Start it; ``failed`` is called with Spark's error if it fails."""
        self._thread = InheritableThread(
            target=self._run,
            args=(failed,),
            name="holdfast-slots",
            daemon=True,
            session=self._session,
        )
        self._thread.start()

    def _run(self, failed: Callable[[BaseException], None]) -> None:
        context = self._session.sparkContext
        try:
            context.setJobGroup(self._group, "slots of a job", interruptOnCancel=True)
            rows = context.parallelize(range(self._width), self._width)
            rows.barrier().mapPartitions(self._task).collect()
        except BaseException as error:
            _logger.debug("the barrier job has failed: %s", error)
            failed(_failure(error))
        finally:
            self._ended.set()

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it has ended."""
        return self._ended.wait(seconds)

    def cancel(self) -> None:
        """Cancel it, and wait until its tasks have ended."""
        self._session.sparkContext.cancelJobGroup(self._group)
        self._ended.wait(_CANCEL)


def _failure(error: BaseException) -> JobExecutionError:
    """Return the error of a task, without the stack traces of Java and Python."""
    missing = lacking(str(error))
    if missing is not None:
        return JobExecutionError(missing)
    lines = [line.strip() for line in str(error).splitlines()]
    lost = _LOST.findall(str(error))
    raised = [line for line in lines if _RAISED.match(line)]
    told = [*lost[:1], *raised[-1:], *lines[:1], type(error).__name__][0]
    kind = LostSlotError if lost else JobExecutionError
    return kind(f"Spark has ended the slots: {told[:500]}")
