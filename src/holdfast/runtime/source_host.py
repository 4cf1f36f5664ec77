"""A process that runs the loop of one source subtask, and how the workers talk to it.

A loop cannot move: its position may be in its local variables. So it gets a process of its own,
which the first worker to read from it starts; all workers find it through a file in the job's
directory. Whoever writes that file first is the source: a second process, started by a task that
Spark ran twice, sees it and ends. The process ends with the job (its directory is gone) or with the
process that Spark starts workers from.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle

from holdfast.common._cloudpickle import dumps
from holdfast.errors import InternalError
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.addresses import BadAddressError, read_address, write_address
from holdfast.runtime.blocks import decode_records
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import FailureReporter, OperatorFailed
from holdfast.runtime.job import JobCode
from holdfast.runtime.logs import capture, pass_on, set_levels, spill, take
from holdfast.runtime.peers import GONE, Line, Listener, PeerError, connect, listen, listen_on
from holdfast.runtime.protocol import Failure, decode_failure, encode
from holdfast.runtime.sockets import listen_at, own_ip
from holdfast.runtime.source_thread import SourceThread
from holdfast.runtime.sources import (
    Beginning,
    LiveSource,
    ReadRequest,
    Snapshot,
    SnapshotRequest,
    SourceAccess,
)

_START_SECONDS = 60.0
#: how long a source process may take to let a worker in, which its loop may delay, in seconds
_CONNECT_SECONDS = 60.0
_WATCH_SECONDS = 0.5


class HostedSources(SourceAccess):
    """Finds or starts the source processes of a job."""

    def __init__(self, attempt: int) -> None:
        """Processes of another attempt are not talked to."""
        self._attempt = attempt

    def connect(
        self, job: JobCode, operator: PlannedOperator, subtask: int, beginning: Beginning
    ) -> LiveSource:
        """Connect to the process of a subtask; start it if there is none."""
        folder = Path(job.directory) / "sources"
        folder.mkdir(parents=True, exist_ok=True)
        # NB: not by its uid, which may have any characters
        registration = folder / f"{operator.id}-{subtask}-{self._attempt}.json"
        if not registration.exists():
            _start(registration, job, operator, subtask, self._attempt, beginning)
        return HostedSource(_connect(registration, operator.name, subtask))


class HostedSource(LiveSource):
    """A connection to a source process."""

    def __init__(self, line: Line) -> None:
        """Talk to the process over this line."""
        self._finished = False
        self._line = line

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """Decoded batches; a loop's exception is raised here as an operator's failure."""
        with _watched():
            self._line.say(request)
            while data := self._line.receive().data:
                yield decode_records(data)
            self._finished, failure, self.watermark, lines = self._line.hear()
            pass_on(lines)
        if failure is not None:
            raise OperatorFailed(decode_failure(failure))

    def snapshot(self, request: SnapshotRequest) -> Snapshot:
        """The function's state after a read with a barrier."""
        with _watched():
            self._line.say(request)
            snapshot, lines = self._line.hear()
            pass_on(lines)
            return Snapshot(*snapshot)

    @property
    def finished(self) -> bool:
        """As the process said after the last read."""
        return self._finished

    def close(self) -> None:
        """Hang up; the process goes on."""
        self._line.close()


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    try:
        yield
    except GONE as error:
        raise InternalError(
            "the process of a source function has died; the job has to go back to its last "
            "checkpoint, or start again"
        ) from error


def _connect(registration: Path, operator: str, subtask: int) -> Line:
    try:
        address = read_address(registration)
        if address is None:
            raise PeerError(f"there is no '{registration}' any more")
        return connect(address, _CONNECT_SECONDS)
    except (PeerError, BadAddressError) as error:
        raise InternalError(
            f"the process of source '{operator}', subtask {subtask}, cannot be reached: {error}"
        ) from error


def _start(
    registration: Path,
    job: JobCode,
    operator: PlannedOperator,
    subtask: int,
    attempt: int,
    beginning: Beginning,
) -> None:
    order = dumps(
        (operator, subtask, attempt, dict(job.parameters), beginning, dict(job.log_levels))
    )
    with contextlib.ExitStack() as until_started:
        # a socket that only this user can connect to, if no task will run on another host
        listeners = [] if job.one_host else [listen_at(own_ip(), job.ports)]
        sockets = [until_started.enter_context(listener).fileno() for listener in listeners]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "holdfast.runtime.source_host",
                str(registration),
                str(os.getppid()),
                *map(str, sockets),
            ],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,
            pass_fds=sockets,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(pickle.dumps((job.main_classes_pickled(), order)))
        process.stdin.close()
    deadline = time.monotonic() + _START_SECONDS
    while not registration.exists():
        if time.monotonic() > deadline or process.poll() not in (None, 0):
            raise InternalError(
                f"the process for source '{operator.name}' did not start (exit code "
                f"{process.poll()}); see the worker's log"
            )
        time.sleep(0.01)


class _Host:
    """Serves the reads of one source subtask."""

    def __init__(self, order: bytes) -> None:
        operator, subtask, attempt, parameters, beginning, levels = cloudpickle.loads(order)
        self._failure: Failure | None = None
        self._thread: SourceThread | None = None
        self._lock = threading.Lock()
        context = OperatorContext(operator, subtask, attempt, None, None, parameters)  # type: ignore[arg-type]
        report = FailureReporter(operator.name, subtask)
        capture(report)
        set_levels(levels)
        try:
            function = operator.node.operation.source.function
            self._thread = SourceThread(function, context, report, beginning)
        except OperatorFailed as failed:
            self._failure = failed.failure

    def serve(self, line: Line) -> None:
        """Answer one worker until it hangs up."""
        while True:
            request = line.hear()
            with self._lock:
                if isinstance(request, SnapshotRequest):
                    thread = self._thread
                    snapshot = thread.snapshot(request) if thread else Snapshot()
                    line.say((tuple(snapshot), take()))
                else:
                    self._answer(line, request)

    def _answer(self, line: Line, request: ReadRequest) -> None:
        failure = self._failure
        try:
            for data in self._thread.read(request) if self._thread else ():
                line.send(data=data)
        except OperatorFailed as failed:
            failure = failed.failure
        line.send()
        thread = self._thread
        finished = thread is not None and thread.finished
        watermark = thread.watermark if thread is not None else Watermark()
        line.say((finished, encode(failure) if failure else None, watermark, take()))

    def stop(self) -> None:
        """Cancel the loop."""
        if self._thread is not None:
            self._thread.stop()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _listen(serve: Callable[[Line], None]) -> Listener:
    """Listen at the socket that this process was started with, or else at one of its own."""
    given = [socket.socket(fileno=int(number)) for number in sys.argv[3:]]
    return listen_on(given[0], serve) if given else listen(serve)


def main() -> None:
    """Run the loop that standard input describes until the job is over."""
    registration, anchor = Path(sys.argv[1]), int(sys.argv[2])
    capture()
    atexit.register(spill)
    classes, order = pickle.loads(sys.stdin.buffer.read())
    vars(sys.modules["__main__"]).update(cloudpickle.loads(classes))
    host: Future[_Host] = Future()
    with closing(_listen(lambda line: host.result().serve(line))) as listener:
        if not write_address(registration, listener.address, replace=False):
            return  # another process is the source of this subtask
        host.set_result(_Host(order))
        while registration.exists() and _is_alive(anchor):
            time.sleep(_WATCH_SECONDS)
        host.result().stop()


if __name__ == "__main__":
    main()
