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
import json
import os
import pickle
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import cloudpickle

from holdfast.common._cloudpickle import dumps
from holdfast.errors import InternalError
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.blocks import decode_records
from holdfast.runtime.context import OperatorContext
from holdfast.runtime.event_time import Watermark
from holdfast.runtime.failures import FailureReporter, OperatorFailed
from holdfast.runtime.job import JobCode
from holdfast.runtime.logs import capture, pass_on, set_levels, spill, take
from holdfast.runtime.protocol import Failure, decode_failure, encode
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
        registration = folder / f"{operator.uid}-{subtask}-{self._attempt}.json"
        if not registration.exists():
            _start(registration, job, operator, subtask, self._attempt, beginning)
        return HostedSource(registration)


class HostedSource(LiveSource):
    """A connection to a source process."""

    def __init__(self, registration: Path) -> None:
        """Connect to the process that registered itself there."""
        self._finished = False
        self._connection = _connect(registration)

    def read(self, request: ReadRequest) -> Iterator[Sequence[Any]]:
        """Decoded batches; a loop's exception is raised here as an operator's failure."""
        with _watched():
            self._connection.send(request)
            while data := self._connection.recv_bytes():
                yield decode_records(data)
            self._finished, failure, self.watermark, lines = self._connection.recv()
            pass_on(lines)
        if failure is not None:
            raise OperatorFailed(decode_failure(failure))

    def snapshot(self, request: SnapshotRequest) -> Snapshot:
        """The function's state after a read with a barrier."""
        with _watched():
            self._connection.send(request)
            snapshot, lines = self._connection.recv()
            pass_on(lines)
            return Snapshot(*snapshot)

    @property
    def finished(self) -> bool:
        """As the process said after the last read."""
        return self._finished

    def close(self) -> None:
        """Hang up; the process goes on."""
        self._connection.close()


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise InternalError(
            "the process of a source function has died; the job has to go back to its last "
            "checkpoint, or start again"
        ) from error


def _connect(registration: Path) -> Connection:
    found = json.loads(registration.read_text())
    try:
        address = (found["host"], found["port"])
        return Client(address, authkey=bytes.fromhex(found["key"]))
    except (OSError, EOFError) as error:
        raise InternalError(
            f"the source process at {found['host']}:{found['port']} cannot be reached: {error}"
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
    host = "127.0.0.1" if job.one_host else socket.gethostname()
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "holdfast.runtime.source_host",
            str(registration),
            str(os.getppid()),
            host,
        ],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
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

    def serve(self, connection: Connection) -> None:
        """Answer one worker until it hangs up."""
        with contextlib.suppress(EOFError, OSError), connection:
            while True:
                request = connection.recv()
                with self._lock:
                    if isinstance(request, SnapshotRequest):
                        thread = self._thread
                        snapshot = thread.snapshot(request) if thread else Snapshot()
                        connection.send((tuple(snapshot), take()))
                    else:
                        self._answer(connection, request)

    def _answer(self, connection: Connection, request: ReadRequest) -> None:
        failure = self._failure
        try:
            for data in self._thread.read(request) if self._thread else ():
                connection.send_bytes(data)
        except OperatorFailed as failed:
            failure = failed.failure
        connection.send_bytes(b"")
        thread = self._thread
        finished = thread is not None and thread.finished
        watermark = thread.watermark if thread is not None else Watermark()
        connection.send((finished, encode(failure) if failure else None, watermark, take()))

    def stop(self) -> None:
        """Cancel the loop."""
        if self._thread is not None:
            self._thread.stop()


def _register(registration: Path, host: str, port: int, key: bytes) -> bool:
    """Become the source of this subtask; False if another process is already."""
    text = json.dumps({"host": host, "port": port, "key": key.hex(), "pid": os.getpid()})
    draft = registration.with_suffix(f".{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text)
    try:
        os.link(draft, registration)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _accept(listener: Listener, host: _Host) -> None:
    while True:
        try:
            connection = listener.accept()
        except (OSError, EOFError):
            return
        threading.Thread(target=host.serve, args=(connection,), daemon=True).start()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> None:
    """Run the loop that standard input describes until the job is over."""
    registration, anchor, host_name = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    capture()
    atexit.register(spill)
    classes, order = pickle.loads(sys.stdin.buffer.read())
    vars(sys.modules["__main__"]).update(cloudpickle.loads(classes))
    key = secrets.token_bytes(32)
    with Listener((host_name, 0), backlog=16, authkey=key) as listener:
        if not _register(registration, host_name, listener.address[1], key):
            return
        host = _Host(order)
        threading.Thread(target=_accept, args=(listener, host), daemon=True).start()
        while registration.exists() and _is_alive(anchor):
            time.sleep(_WATCH_SECONDS)
        host.stop()


if __name__ == "__main__":
    main()
