"""The barrier job of an attempt, and what its tasks run: a slot each."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pyspark import BarrierTaskContext, Broadcast, InheritableThread
from pyspark.sql import SparkSession

from holdfast.common.time import wall_clock
from holdfast.datastream.checkpoint_storage import DIRECTORY as CHECKPOINTS
from holdfast.datastream.engines import writes_rows
from holdfast.driver.outcome import LostSlotError
from holdfast.errors import JobExecutionError
from holdfast.filesystem import file_system_of
from holdfast.printable import get_logger
from holdfast.runtime.addresses import Address
from holdfast.runtime.job import JobCode
from holdfast.runtime.resident.outbox import Post
from holdfast.runtime.resident.slot import Make, Slot
from holdfast.runtime.resident.subtask import ResidentSubtask
from holdfast.runtime.sockets import ip_of, own_ip
from holdfast.spark.directory import DIRECTORY
from holdfast.spark.lacking import lacking
from holdfast.state.local_copies import copies_of
from holdfast.state.storage import DirectoryStateStorage

__all__ = ["BarrierJob", "SlotTask"]

#: Seconds until a thread that computes lets another one have its turn. With 0.5 ms a keyed count is
#: a tenth to a fifth slower; with Python's own 5 ms it is no faster, and blocks wait longer.
_SWITCH: Final = 0.002

#: how long tasks may take to end that are cancelled, in seconds
_CANCEL: Final = 30.0

#: Spark's words for an executor that is gone, and for a task whose process is
_LOST: Final = re.compile(r"ExecutorLostFailure .*|Python worker exited unexpectedly.*")

#: the last line of a Python traceback
_RAISED: Final = re.compile(r"(?!py4j|org\.|java\.|at )[A-Za-z_][\w.]*(Error|Exception|Exit): ")

_logger = get_logger(__name__)


class SlotTask:
    """What Spark runs in each task of the barrier job."""

    def __init__(
        self,
        job: Broadcast[bytes],
        job_id: str,
        attempt: int,
        driver: Address,
        driver_host: str,
        local: bool,
        heartbeat: float,
        takes_checkpoints: bool,
    ) -> None:
        """Work for a driver.

        Args:
            job: what to run.
            job_id: the name of its plan.
            attempt: its number.
            driver: where the driver listens.
            driver_host: the name or address of the driver's host, for executors.
            local: all slots are on the driver's machine.
            heartbeat: whoever is silent for so many seconds is lost.
            takes_checkpoints: whether slots write to the directory of checkpoints.
        """
        self._job = job
        self._job_id = job_id
        self._attempt = attempt
        self._driver = driver
        self._driver_host = driver_host
        self._local = local
        self._heartbeat = heartbeat
        self._takes_checkpoints = takes_checkpoints

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Be a slot until the attempt is over."""
        from holdfast.spark.worker import garbage, known_jobs

        number = BarrierTaskContext.get().partitionId()
        job = known_jobs.get(self._job_id, self._job)
        self._check_directories(job)
        sys.setswitchinterval(_SWITCH)
        garbage.expect_state()
        make = self._maker(job)
        slot = Slot(job, self._attempt, number, make, self._heartbeat, garbage.spare_beside)
        driver = self._find_driver()
        slot.serve(driver, driver.host if self._local else own_ip())
        yield number

    def _find_driver(self) -> Address:
        """Return where the driver is, as this host sees it."""
        host = ip_of(self._driver_host, "spark.driver.host", ":" in self._driver.host)
        return Address(self._driver.key, host=host, port=self._driver.port)

    def _check_directories(self, job: JobCode) -> None:
        """Check that this host has what the slot writes to, where that is a mounted directory."""
        from holdfast.spark.worker import check_directory

        files, path = file_system_of(job.state_directory)
        if self._takes_checkpoints and not files.is_remote:
            check_directory(path, "directory of its checkpoints", CHECKPOINTS.option.key())
        if writes_rows(job.plan):
            check_directory(job.directory, "place of rows that Spark writes", DIRECTORY)

    def _maker(self, job: JobCode) -> Make:
        files, path = file_system_of(job.state_directory)
        storage = DirectoryStateStorage(path, files)
        # NB: a copy beside a directory of the same disk is of no use
        copied = files.is_remote or not self._local

        def make(level: int, number: int, post: Post) -> ResidentSubtask:
            copies = copies_of(job.state, job.key, level, number) if copied else None
            return ResidentSubtask(
                job, level, number, self._attempt, storage, wall_clock, post, copies=copies
            )

        return make


class BarrierJob:
    """A Spark job whose tasks run all at once, for as long as an attempt lasts."""

    def __init__(self, session: SparkSession, group: str, task: SlotTask, width: int) -> None:
        """Nothing runs yet."""
        self._session = session
        self._group = group
        self._task = task
        self._width = width
        self._ended = threading.Event()

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Start it; ``failed`` is called with what Spark says, if it ends by an error."""
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
        """Wait for its end; returns whether it has ended."""
        return self._ended.wait(seconds)

    def cancel(self) -> None:
        """End it, whatever its tasks do."""
        self._session.sparkContext.cancelJobGroup(self._group)
        self._ended.wait(_CANCEL)


def _failure(error: BaseException) -> JobExecutionError:
    """Return what went wrong in a task, without the stacks of Java and Python around it."""
    missing = lacking(str(error))
    if missing is not None:
        return JobExecutionError(missing)
    lines = [line.strip() for line in str(error).splitlines()]
    lost = _LOST.findall(str(error))
    raised = [line for line in lines if _RAISED.match(line)]
    told = [*lost[:1], *raised[-1:], *lines[:1], type(error).__name__][0]
    kind = LostSlotError if lost else JobExecutionError
    return kind(f"Spark has ended the slots: {told[:500]}")
