"""Asynchronous operations on a job, as in Flink: a request returns an id to poll for the result."""

from __future__ import annotations

import os
import re
import threading
import traceback
import uuid
from collections import OrderedDict
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, field

from holdfast.common import CompletableFuture
from holdfast.rest.errors import Refusal
from holdfast.rest.shapes import actions as action_shapes
from holdfast.rest.site import ServedJob

#: how many requests are kept
_REMEMBERED: Final = 1000
_TRIGGER: Final = re.compile(r"[0-9a-f]{32}")


class SavepointRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /jobs/:id/savepoints``; the format is ignored, since there is only one."""

    cancel_job: bool = field(default=False, name="cancel-job")
    target_directory: str | None = field(default=None, name="target-directory")
    format_type: str | None = field(default=None, name="formatType")
    trigger_id: str | None = field(default=None, name="triggerId")


class StopRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /jobs/:id/stop``."""

    target_directory: str | None = field(default=None, name="targetDirectory")
    drain: bool = False
    format_type: str | None = field(default=None, name="formatType")
    trigger_id: str | None = field(default=None, name="triggerId")


class CheckpointRequest(msgspec.Struct, frozen=True):
    """The body of ``POST /jobs/:id/checkpoints``; the type is ignored, the backend decides."""

    checkpoint_type: str | None = field(default=None, name="checkpointType")
    trigger_id: str | None = field(default=None, name="triggerId")


class _Operation(NamedTuple):
    job: str
    kind: str
    future: CompletableFuture[Any]


class Operations:
    """The requests of clients, by id, so that clients can poll for their results."""

    def __init__(self) -> None:
        """Start without requests."""
        self._known: OrderedDict[str, _Operation] = OrderedDict()
        #: requests whose result no client has read yet
        self._untold: set[str] = set()
        self._lock = threading.Condition()

    def start(
        self,
        job: ServedJob,
        kind: str,
        wanted: str | None,
        ask: Callable[[], CompletableFuture[Any]],
    ) -> action_shapes.TriggerAnswer:
        """Start an operation, unless a request with that id exists; return the id."""
        if wanted is not None and not _TRIGGER.fullmatch(wanted):
            raise Refusal(400, f"triggerId must be 32 hexadecimal digits; got {wanted[:100]!r}")
        trigger = wanted or uuid.uuid4().hex
        with self._lock:
            if trigger not in self._known:
                self._known[trigger] = _Operation(job.history.id, kind, ask())
                self._untold.add(trigger)
                while len(self._known) > _REMEMBERED:
                    self._untold.discard(self._known.popitem(last=False)[0])
        return action_shapes.TriggerAnswer(trigger)

    def result(self, job: ServedJob, kind: str, trigger: str) -> CompletableFuture[Any]:
        """Return the future of a request.

        Raises:
            Refusal: if there is none with that id and kind.
        """
        found = self._known.get(trigger)
        if found is None or (found.job, found.kind) != (job.history.id, kind):
            raise Refusal(
                404, f"there is no request with the id {trigger} for a {kind} of this job"
            )
        if found.future.done():
            with self._lock:
                self._untold.discard(trigger)
                self._lock.notify_all()
        return found.future

    def wait_until_told(self, seconds: float) -> None:
        """Wait until clients have read the results of their requests, or the time has passed."""
        with self._lock:
            self._lock.wait_for(lambda: not self._untold, seconds)

    def savepoint(self, job: ServedJob, trigger: str) -> action_shapes.SavepointOperation:
        """Return the status of a savepoint."""
        status, path, cause = _state(self.result(job, "savepoint", trigger))
        done = None
        if status.id == "COMPLETED":
            done = action_shapes.SavepointResult(path if cause is None else UNSET, cause or UNSET)
        return action_shapes.SavepointOperation(status, done)

    def checkpoint(self, job: ServedJob, trigger: str) -> action_shapes.CheckpointOperation:
        """Return the status of a checkpoint."""
        status, number, cause = _state(self.result(job, "checkpoint", trigger))
        done = None
        if status.id == "COMPLETED":
            done = action_shapes.CheckpointResult(
                number if cause is None else UNSET, cause or UNSET
            )
        return action_shapes.CheckpointOperation(status, done)

    def rescaling(self, job: ServedJob, trigger: str) -> action_shapes.RescalingOperation:
        """Return the status of a change of parallelism."""
        status, _, cause = _state(self.result(job, "rescaling", trigger))
        done = None
        if status.id == "COMPLETED":
            widths = {vertex.id: vertex.parallelism for vertex in job.history.graph.vertices}
            done = action_shapes.RescalingResult(widths if cause is None else UNSET, cause or UNSET)
        return action_shapes.RescalingOperation(status, done)


def _state(
    future: CompletableFuture[Any],
) -> tuple[action_shapes.OperationStatus, Any, action_shapes.FailureCause | None]:
    if not future.done():
        return action_shapes.OperationStatus("IN_PROGRESS"), None, None
    failure, done = future.exception(), action_shapes.OperationStatus("COMPLETED")
    if failure is None:
        return done, future.result(), None
    trace = "".join(traceback.format_exception_only(failure)).strip()
    return done, None, action_shapes.FailureCause(type(failure).__name__, trace, "")


def confined(asked: str | None, job: ServedJob, anywhere: bool) -> str | None:
    """Return the directory of a savepoint that a client requested; None for the job's own.

    A client may use directories below that of the job's savepoints. A client authenticated as the
    job's own user may use any directory.

    Raises:
        Refusal: if the directory is not allowed, or there is none.
    """
    base = job.savepoint_directory
    if asked is None and base is None:
        raise Refusal(
            400,
            "a savepoint needs a directory: set 'execution.checkpointing.savepoint-dir', or name "
            "one with 'holdfast savepoint'",
        )
    if asked is None or anywhere:
        return asked
    if base is None or not _is_below(asked, base):
        where = base or "the directory of 'execution.checkpointing.savepoint-dir', which is not set"
        raise Refusal(
            403,
            f"a savepoint may be written below {where}; got {asked[:200]!r}; leave the directory "
            "out, or use 'holdfast savepoint', which may name any",
        )
    return asked


def _is_below(asked: str, base: str) -> bool:
    if "\0" in asked:
        return False
    if "://" in base:
        home = base.rstrip("/")
        if asked.rstrip("/") != home and not asked.startswith(f"{home}/"):
            return False
        # NB: some stores decode names once more
        return ".." not in PurePosixPath(unquote(unquote(asked))).parts
    home = os.path.realpath(base)
    return "://" not in asked and PurePosixPath(os.path.realpath(asked)).is_relative_to(home)
