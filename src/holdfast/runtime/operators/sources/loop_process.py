"""A process that runs the loop of one source subtask, and its connections with workers.

A loop cannot be moved, because its position may be in local variables. So it gets a process of its
own, which is started by the first worker that reads from it. All workers ask the driver for its
address (`desk`). The process ends with the attempt, with the driver, or with the process from which
Spark starts workers.
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
from functools import partial
from typing import Any, NamedTuple

import cloudpickle

from holdfast.common._cloudpickle import dumps, know_sources
from holdfast.errors import InternalError
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import FailureReporter, OperatorFailed
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.desk import Claim, SourcePlace, SourceState, ask
from holdfast.runtime.network.handshake import PeerError
from holdfast.runtime.network.peers import GONE, Line, Listener, connect, listen, listen_on
from holdfast.runtime.network.sockets import listen_at, own_ip
from holdfast.runtime.operators.sources.loop_thread import SourceThread
from holdfast.runtime.operators.sources.source_instance import (
    LiveSource,
    LoopSnapshot,
    LoopStart,
    ReadRequest,
    SnapshotRequest,
    SourceAccess,
)
from holdfast.runtime.wire.blocks import decode_records
from holdfast.runtime.wire.protocol import Failure, decode_failure, encode
from holdfast.runtime.worker.job_code import JobCode
from holdfast.runtime.worker.logs import capture, pass_on, set_levels, spill, take

_START_SECONDS = 60.0
#: how long a source process may take to accept a worker, which its loop may delay, in seconds
_CONNECT_SECONDS = 60.0
_WATCH_SECONDS = 0.5
#: interval of requests to the driver while a process starts, in seconds
_LOOK_SECONDS = 0.05


class HostedSources(SourceAccess):
    """Finds or starts the source processes of a job."""

    def __init__(self, attempt: int) -> None:
        """Use only the processes of this attempt."""
        self._attempt = attempt

    def connect(
        self, job: JobCode, operator: PlannedOperator, subtask: int, beginning: LoopStart
    ) -> LiveSource:
        """Connect to the process of a subtask; start it if there is none."""
        place = SourcePlace(self._attempt, operator.id, subtask)
        try:
            found = _find(job, place)
            if found == SourceState():
                found = _start(job, operator, place, beginning)
            if found.address is None:
                raise PeerError("it has ended, or the attempt has")
            address = found.address.opened_by(job.key)
            certificate = b"" if address.socket else job.certificate
            return HostedSource(connect(address, _CONNECT_SECONDS, certificate))
        except (PeerError, *GONE) as error:
            raise InternalError(
                f"the process of source '{operator.name}', subtask {subtask}, cannot be reached: "
                f"{str(error) or type(error).__name__}"
            ) from error


class HostedSource(LiveSource):
    """A connection to a source process."""

    def __init__(self, line: Line) -> None:
        """Use this connection to the process."""
        self._finished = False
        self._line = line

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """Yield decoded batches; raise a loop's exception as an operator's failure."""
        with _watched():
            self._line.say(request)
            while data := self._line.receive().data:
                yield decode_records(data)
            self._finished, failure, self.watermark, lines = self._line.hear()
            pass_on(lines)
        if failure is not None:
            raise OperatorFailed(decode_failure(failure))

    def snapshot(self, request: SnapshotRequest) -> LoopSnapshot:
        with _watched():
            self._line.say(request)
            snapshot, lines = self._line.hear()
            pass_on(lines)
            return LoopSnapshot(*snapshot)

    @property
    def finished(self) -> bool:
        """Return what the process reported after the last read."""
        return self._finished

    def close(self) -> None:
        """Close the connection; the process continues."""
        self._line.close()


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    try:
        yield
    except GONE as error:
        raise InternalError(
            "the process of a source function has died; the job must be restored from its "
            "last checkpoint, or be started again"
        ) from error


def _find(job: JobCode, place: SourcePlace) -> SourceState:
    assert job.desk is not None
    return ask(job.desk, job.certificate, "find", place)  # type: ignore[no-any-return]


def _start(
    job: JobCode, operator: PlannedOperator, place: SourcePlace, beginning: LoopStart
) -> SourceState:
    """Start a process; return the driver's state once it, or another process, is the source."""
    levels, sources = dict(job.log_levels), dict(job.sources)
    order = dumps((operator, place, dict(job.parameters), beginning, levels, sources))
    with contextlib.ExitStack() as until_started:
        # without tasks on other hosts, a Unix socket is used that only this user can connect to
        listeners = [] if job.one_host else [listen_at(own_ip(), job.ports)]
        sockets = [until_started.enter_context(listener).fileno() for listener in listeners]
        terms = _Terms(
            job.desk, job.key, job.certificate, place, tuple(sockets), os.getppid(), tuple(sys.argv)
        )
        process = subprocess.Popen(
            # NB: the argument is only for process listings; the process reads standard input
            [
                sys.executable,
                "-m",
                "holdfast.runtime.operators.sources.loop_process",
                job.directory or job.id,
            ],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,
            pass_fds=sockets,
        )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(pickle.dumps((tuple(terms), job.main_classes_pickled(), order)))
        process.stdin.close()
    deadline = time.monotonic() + _START_SECONDS
    while (found := _find(job, place)) == SourceState():
        if time.monotonic() > deadline or process.poll() not in (None, 0):
            raise InternalError(
                f"the process for source '{operator.name}' did not start (exit code "
                f"{process.poll()}); see the worker's log"
            )
        time.sleep(_LOOK_SECONDS)
    return found


class _Terms(NamedTuple):
    """What a process needs to know before it can be a source.

    Attributes:
        desk: the address of the driver's desk.
        key: the job's key, for processes that connect.
        sockets: the file descriptor of the socket to listen on; empty: its own Unix socket.
        anchor: the id of the process with which this one ends.
        arguments: the program's ``sys.argv``.
    """

    desk: Address | None
    key: bytes
    certificate: bytes
    place: SourcePlace
    sockets: tuple[int, ...]
    anchor: int
    arguments: tuple[str, ...]


class _Host:
    """Serves the reads of one source subtask."""

    def __init__(self, order: bytes) -> None:
        operator, place, parameters, beginning, levels, sources = cloudpickle.loads(order)
        know_sources(sources)
        self._failure: Failure | None = None
        self._thread: SourceThread | None = None
        self._lock = threading.Lock()
        attempt, _, subtask = place
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
        """Answer one worker until it closes the connection."""
        while True:
            request = line.hear()
            with self._lock:
                if isinstance(request, SnapshotRequest):
                    thread = self._thread
                    snapshot = thread.snapshot(request) if thread else LoopSnapshot()
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


def _listen(serve: Callable[[Line], None], terms: _Terms) -> Listener:
    """Listen on the socket that this process was started with, or else on its own."""
    given = [socket.socket(fileno=number) for number in terms.sockets]
    key = terms.key.hex()
    if given:
        return listen_on(given[0], serve, key, terms.certificate)
    return listen(serve, key=key, certificate=terms.certificate)


def main() -> None:
    """Run the loop that standard input describes until the attempt is over."""
    capture()
    atexit.register(spill)
    given, classes, order = pickle.loads(sys.stdin.buffer.read())
    terms = _Terms(*given)
    sys.argv[:] = terms.arguments
    assert terms.desk is not None
    vars(sys.modules["__main__"]).update(cloudpickle.loads(classes))
    host: Future[_Host] = Future()
    with closing(_listen(partial(_serve, host), terms)) as listener:
        claim = Claim(terms.desk, terms.certificate, terms.place, listener.address)
        if not claim.granted:
            return  # another process runs the source of this subtask, or the attempt is over
        over = threading.Event()
        _tell_end(claim, over)
        host.set_result(_Host(order))
        while not over.wait(_WATCH_SECONDS) and _is_alive(terms.anchor):
            pass
        host.result().stop()


def _serve(host: Future[_Host], line: Line) -> None:
    host.result().serve(line)


def _tell_end(claim: Claim, over: threading.Event) -> None:
    """Set the event when the claim has ended."""

    def wait() -> None:
        try:
            claim.wait()
        finally:
            over.set()

    threading.Thread(target=wait, name="holdfast-claim", daemon=True).start()


if __name__ == "__main__":
    main()
