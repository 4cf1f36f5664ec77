"""A running job as lines of text, for ``status`` and ``top``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.cli.running import duration_of
from holdfast.cli.text import size_of, table, time_of
from holdfast.common.constants import MAX_LONG_VALUE

_HEADERS: Final = (
    "VERTEX",
    "SUBTASKS",
    "IN",
    "IN/S",
    "OUT",
    "OUT/S",
    "BUSY",
    "WAITS",
    "WATERMARK",
)


def described(
    job: Mapping[str, Any], checkpoints: Mapping[str, Any], exceptions: Mapping[str, Any]
) -> Iterator[str]:
    """Return the status, the checkpoints and the last failure of a job."""
    yield f"{job['name']}  {job['jid']}"
    since = time_of(job["start-time"])
    yield f"{job['state']} for {duration_of(job['duration'])}, since {since}"
    if job.get("engine"):
        yield f"engine: {job['engine']}: {job['engine-reason']}"
    yield ""
    yield from table(_HEADERS, map(_vertex, job["vertices"]))
    yield ""
    yield from _checkpoints(checkpoints)
    yield from _failures(exceptions["exceptionHistory"]["entries"])


def _vertex(vertex: Mapping[str, Any]) -> tuple[object, ...]:
    io, now = vertex["metrics"], vertex["now"]
    # what leaves a vertex: for other vertices, and for the outside world
    out = io["write-records"] + now["records-written"]
    out_now = now["records-out-per-second"] + now["records-written-per-second"]
    return (
        vertex["name"],
        vertex["parallelism"],
        f"{io['read-records']:,}",
        f"{now['records-in-per-second']:,.0f}",
        f"{out:,}",
        f"{out_now:,.0f}",
        f"{now['busy-ms-per-second'] / 10:.0f} %",
        f"{now['backpressured-ms-per-second'] / 10:.0f} %",
        _watermark(now["watermark"]),
    )


def _watermark(time: int | None) -> str:
    if time is None:
        return "-"
    return "end" if time >= MAX_LONG_VALUE else time_of(time) if abs(time) < 1e14 else str(time)


def _checkpoints(checkpoints: Mapping[str, Any]) -> Iterator[str]:
    counts = checkpoints["counts"]
    told = [f"{counts[kind]} {kind.replace('_', ' ')}" for kind in ("completed", "failed")]
    if counts["in_progress"]:
        told.append(f"{counts['in_progress']} in progress")
    if counts["restored"]:
        told.append(f"{counts['restored']} restored")
    yield f"checkpoints: {', '.join(told)}"
    last = checkpoints["latest"]["completed"]
    if last is not None:
        yield (
            f"  last: {last['id']}, {time_of(last['trigger_timestamp'])}, "
            f"{duration_of(last['end_to_end_duration'])}, {size_of(last['state_size'])} "
            f"({size_of(last['checkpointed_size'])} new), {last['external_path']}"
        )


def _failures(entries: list[Mapping[str, Any]]) -> Iterator[str]:
    if entries:
        last = entries[0]
        yield f"last failure: {time_of(last['timestamp'])}, {last['taskName'] or 'the job'}"
        yield from (f"  {line}" for line in last["stacktrace"].splitlines()[:1])
