"""What the program knows of its running job, as one value that can be printed and sent."""

import time
from collections import Counter
from typing import Any

import msgspec

from examples.orders.events import STEPS
from holdfast.common import JobClient

__all__ = ["Checkpoint", "Incident", "Progress", "look"]

#: a rate is that of so many seconds
_SPAN = 4.0


class Checkpoint(msgspec.Struct, frozen=True):
    """A checkpoint that has ended, at a time in seconds.

    Its duration is in milliseconds, its size in bytes.
    """

    id: int
    status: str
    duration: int
    size: int
    time: float = 0.0


class Incident(msgspec.Struct, frozen=True):
    """Something that happened to the job; the time is in seconds.

    Attributes:
        kind: ``failed``, ``continued``, ``counts``, ``killed`` or ``rescaled``.
    """

    time: float
    text: str
    kind: str = ""


class Progress(msgspec.Struct, frozen=True):
    """How far a job is.

    Attributes:
        status: as in Flink: RUNNING, RESTARTING, FINISHED, ….
        events: read since this program was started, and again after a failure.
        rate: events in a second.
        orders: by status.
        low_stock: products of which there is little left.
        duplicates: events that had been there before.
        watermark: how far event time is, in milliseconds; None before it is known.
        checkpoints: the last ones.
        incidents: all of them.
        job: the id of the job.
        page: the address of the job's page.
        subtasks: how many subtasks an operator has.
        note: what goes on while no events are read.
    """

    status: str
    events: int = 0
    rate: float = 0.0
    orders: dict[str, int] = {}
    low_stock: int = 0
    duplicates: int = 0
    watermark: int | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    incidents: tuple[Incident, ...] = ()
    job: str = ""
    page: str = ""
    subtasks: int = 0
    note: str = ""

    @property
    def total(self) -> int:
        """The number of orders."""
        return sum(self.orders.values())


def look(client: JobClient, page: str = "") -> Progress:
    """How far a job is now; it has a page at this address."""
    metrics: Counter[str] = Counter()
    by_subtask = client.get_metrics()
    for values in by_subtask.values():
        metrics.update({name: value for name, value in values.items() if type(value) is int})
    epochs = client.get_epochs()
    return Progress(
        status=client.get_job_status().result().name,
        events=sum(epoch.read for epoch in epochs),
        rate=_rate(epochs, time.time()),
        orders={step: metrics[f"orders.{step}"] for step in STEPS},
        low_stock=metrics["stock.low"],
        duplicates=metrics["events.duplicates"],
        watermark=client.get_watermarks().get("tracking"),
        checkpoints=tuple(
            Checkpoint(
                one.id,
                one.status.name,
                one.duration or 0,
                one.size or 0,
                one.end_timestamp / 1000,
            )
            for one in client.get_checkpoints()[-50:]
            if one.end_timestamp is not None
        ),
        incidents=tuple(_incidents(client)),
        job=str(client.get_job_id()),
        page=page,
        subtasks=max((subtask + 1 for _, subtask in by_subtask), default=0),
    )


def _rate(epochs: list[Any], now: float) -> float:
    recent = [epoch for epoch in epochs[-100:] if epoch.started + epoch.seconds > now - _SPAN]
    if not recent:
        return 0.0
    return float(sum(epoch.read for epoch in recent) / max(now - recent[0].started, 0.1))


def _incidents(client: JobClient) -> list[Incident]:
    found = []
    for attempt in client.get_attempts():
        if attempt.checkpoint is not None:
            text = f"continues from checkpoint {attempt.checkpoint}"
            found.append(Incident(attempt.started, text, "continued"))
        if attempt.failure is not None:
            text = f"failed: {_without_module(attempt.failure.splitlines()[0])}"
            found.append(Incident(attempt.failed, text, "failed"))
    return found


def _without_module(error: str) -> str:
    """The first line of an error, with the bare name of its class."""
    name, colon, message = error.partition(": ")
    return name.rpartition(".")[2] + colon + message
