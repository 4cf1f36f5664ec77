"""The response about log lines, which Flink does not have."""

from __future__ import annotations

from holdfast.rest.shapes.jobs import Kebab


class LogEntry(Kebab, frozen=True):
    """A line that a function logged; `level` is its name, `time` in milliseconds."""

    number: int
    time: int
    level: str
    logger: str
    operator: str | None
    subtask: int | None
    attempt: int
    host: str
    process: int
    message: str
    trace: str


class Logs(Kebab, frozen=True):
    """The last lines, oldest first. `total` counts all lines of the job, including dropped ones.

    `kept` is false for a job that runs, or ran, in another process: its lines are not known.
    """

    lines: list[LogEntry]
    operators: list[str]
    total: int
    kept: bool
