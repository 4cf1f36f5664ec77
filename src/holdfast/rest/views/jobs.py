"""The responses about jobs and vertices."""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from statistics import fmean
from typing import Any, Final

from msgspec import UNSET

import holdfast
from holdfast.common.job_status import JobStatus
from holdfast.history.events import JobBegan, StartMeasured, SubtaskFigures
from holdfast.history.job import ENDED, JobHistory
from holdfast.history.points import is_spread
from holdfast.plan.model import ROWS_LEVEL
from holdfast.plan.vertices import Vertex
from holdfast.rest.shapes import jobs as shapes
from holdfast.rest.site import Site

#: the version of Flink whose API this is
FLINK_VERSION: Final = "2.3.0"
#: all statuses of a job for which Flink has a timestamp, and all statuses of a task
_JOB_STATUS: Final = ("INITIALIZING", *JobStatus.__members__)
_TASK_STATUS: Final = tuple(name.upper() for name in shapes.TaskCounts.__struct_fields__[1:])
_AS_TASK: Final = {"CANCELLING": "CANCELING", "RESTARTING": "SCHEDULED", "SUSPENDED": "CANCELED"}
#: above these fractions of its time a subtask counts as back-pressured; Flink's limits
_LOW: Final = 0.1
_HIGH: Final = 0.5
_MS: Final = 1000
#: how many user metrics of a vertex are shown, and how much of one that is a text
_METRICS: Final = 200
_LONGEST_TEXT: Final = 200
_LONGEST_SETTING: Final = 2000


def now_ms() -> int:
    """Return the current time in milliseconds."""
    return round(time.time() * _MS)


def overview(site: Site) -> shapes.Overview:
    """Return the number of jobs, and of their processes and slots."""
    histories = [job.history for job in site.jobs()]
    states = Counter(history.status for history in histories)
    over = sum(states[status] for status in ENDED) + states["SUSPENDED"]
    running = [history for history in histories if history.status not in ENDED]
    slots = sum(max((v.parallelism for v in h.graph.vertices), default=0) for h in running)
    return shapes.Overview(
        taskmanagers=len({f.process for h in running for f in _all_figures(h) if f.process}),
        taskmanagers_blocked=0,
        slots_total=slots,
        slots_available=0,
        slots_free_and_blocked=0,
        jobs_running=len(histories) - over,
        jobs_finished=states["FINISHED"],
        jobs_cancelled=states["CANCELED"],
        jobs_failed=states["FAILED"],
        flink_version=FLINK_VERSION,
        flink_commit="",
        holdfast_version=holdfast.__version__,
    )


def _all_figures(history: JobHistory) -> Iterable[SubtaskFigures]:
    return (figure for figures in history.subtasks.figures.values() for figure in figures)


def config(site: Site) -> shapes.Config:
    """Return the settings of the server for the web UI."""
    zone = datetime.now().astimezone()
    offset = zone.utcoffset()
    features = shapes.Features(
        web_submit=False, web_cancel=site.acts, web_rescale=site.acts, web_history=not site.acts
    )
    return shapes.Config(
        refresh_interval=1000,
        timezone_name=zone.tzname() or "UTC",
        timezone_offset=round(offset.total_seconds() * _MS) if offset is not None else 0,
        flink_version=FLINK_VERSION,
        flink_revision="",
        features=features,
    )


def job_ids(site: Site) -> shapes.Jobs:
    """Return the ids and statuses of all jobs."""
    return shapes.Jobs(
        [shapes.JobIdAndStatus(job.history.id, job.history.status) for job in site.jobs()]
    )


def jobs_overview(site: Site) -> shapes.JobsOverview:
    """Return a summary of each job."""
    return shapes.JobsOverview([job.history.look(_summary) for job in site.jobs()])


def _summary(history: JobHistory) -> shapes.JobSummary:
    start, end, duration = _times(history)
    total = history.graph.subtasks
    return shapes.JobSummary(
        jid=history.id,
        name=history.name,
        start_time=start,
        end_time=end,
        duration=duration,
        state=history.status,
        last_modification=history.modified,
        tasks=shapes.TaskCounts(**{"total": total, _task_status(history).lower(): total}),
        engine=history.engine,
    )


def _times(history: JobHistory) -> tuple[int, int, int]:
    """Return the start and the end (-1: it has not ended) of a job, and its duration."""
    end = history.timestamps.get(history.status) if _is_over(history) else None
    return history.started, -1 if end is None else end, (end or now_ms()) - history.started


def _is_over(history: JobHistory) -> bool:
    return history.status in ENDED or history.status == "SUSPENDED"


def _task_status(history: JobHistory) -> str:
    return _AS_TASK.get(history.status, history.status)


def job_details(history: JobHistory) -> shapes.JobDetails:
    """Return a job with its vertices and its plan."""
    start, end, duration = _times(history)
    vertices = [_vertex(history, vertex) for vertex in history.graph.vertices]
    counts = dict.fromkeys(_TASK_STATUS, 0) | {_task_status(history): len(vertices)}
    return shapes.JobDetails(
        jid=history.id,
        name=history.name,
        is_stoppable=False,
        state=history.status,
        job_type="STREAMING",
        start_time=start,
        end_time=end,
        duration=duration,
        max_parallelism=max((v.max_parallelism for v in history.graph.vertices), default=-1),
        now=now_ms(),
        timestamps=dict.fromkeys(_JOB_STATUS, 0) | history.timestamps,
        vertices=vertices,
        status_counts=counts,
        plan=_plan(history),
        engine=history.engine,
        engine_reason=history.engine_reason,
        spark_ui=_spark_ui(history),
        history_directory=history.directory,
    )


def _spark_ui(history: JobHistory) -> str | None:
    """Return the address of Spark's web UI, as long as the job, and so the session, runs."""
    page = "" if history.began is None else history.began.spark_page
    return page if page.startswith(("http://", "https://")) and not _is_over(history) else None


def _vertex(history: JobHistory, vertex: Vertex) -> shapes.JobVertex:
    figures = history.subtasks.figures[vertex.id]
    start, end, duration = _attempt_times(history)
    status = _task_status(history)
    return shapes.JobVertex(
        id=vertex.id,
        slot_sharing_group_id="0" * 32,
        name=vertex.name,
        max_parallelism=vertex.max_parallelism,
        parallelism=vertex.parallelism,
        status=status,
        start_time=start,
        end_time=end,
        duration=duration,
        tasks=dict.fromkeys(_TASK_STATUS, 0) | {status: vertex.parallelism},
        metrics=_io(figures),
        now=_vertex_now(history, vertex, figures),
    )


def _attempt_times(history: JobHistory) -> tuple[int, int, int]:
    _, end, _ = _times(history)
    start = history.attempts[-1].time if history.attempts else history.started
    return start, end, (end if end >= 0 else now_ms()) - start


def _io(figures: Sequence[SubtaskFigures]) -> shapes.IoMetrics:
    return shapes.IoMetrics(
        read_bytes=sum(f.bytes_in for f in figures),
        read_bytes_complete=True,
        write_bytes=sum(f.bytes_out for f in figures),
        write_bytes_complete=True,
        read_records=sum(f.records_in for f in figures),
        read_records_complete=True,
        write_records=sum(f.records_out for f in figures),
        write_records_complete=True,
        accumulated_backpressured_time=round(_MS * sum(f.blocked for f in figures)),
        accumulated_idle_time=round(_MS * sum(f.idle for f in figures)),
        accumulated_busy_time=float(round(_MS * sum(f.busy for f in figures))),
    )


def _vertex_now(
    history: JobHistory, vertex: Vertex, figures: Sequence[SubtaskFigures]
) -> shapes.VertexNow:
    runs = not _is_over(history) and vertex.level != ROWS_LEVEL
    marks = [f.watermark for f in figures if f.watermark is not None]
    blocked = max((f.blocked_now for f in figures), default=0) if runs else 0
    busiest, others = _busiest(figures) if runs else (None, None)
    return shapes.VertexNow(
        records_in_per_second=round(sum(f.in_now for f in figures), 1) if runs else 0.0,
        records_out_per_second=round(sum(f.out_now for f in figures), 1) if runs else 0.0,
        busy_ms_per_second=max((f.busy_now for f in figures), default=0) if runs else 0,
        busiest_subtask=busiest,
        others_busy_ms_per_second=others,
        idle_ms_per_second=max((f.idle_now for f in figures), default=0) if runs else 0,
        backpressured_ms_per_second=blocked,
        backpressure_level=_level(blocked / _MS),
        watermark=min(marks, default=None),
        records_written=sum(sum(f.written.values()) for f in figures),
        records_written_per_second=round(sum(f.written_now for f in figures), 1) if runs else 0.0,
    )


def _busiest(figures: Sequence[SubtaskFigures]) -> tuple[int | None, int | None]:
    """Return the busiest subtask, and how busy the others are on average, in ms per second."""
    if len(figures) < 2:
        return None, None
    busy = [f.busy_now for f in figures]
    busiest = busy.index(max(busy))
    return busiest, round((sum(busy) - busy[busiest]) / (len(busy) - 1))


def _level(ratio: float) -> str:
    return "ok" if ratio <= _LOW else "low" if ratio <= _HIGH else "high"


def job_plan(history: JobHistory) -> shapes.PlanAnswer:
    """Return the plan."""
    return shapes.PlanAnswer(_plan(history))


def _plan(history: JobHistory) -> shapes.PlanGraph:
    layers: dict[str, int] = {}
    for vertex in history.graph.vertices:
        # NB: not its level, since parts that are not connected may have levels of their own
        before = [layers[edge.id] for edge in vertex.inputs]
        layers[vertex.id] = max(before) + 1 if before else min(vertex.level, 0)
    nodes = [_node(vertex, layers[vertex.id]) for vertex in history.graph.vertices]
    return shapes.PlanGraph(history.id, history.name, "STREAMING", nodes)


def _node(vertex: Vertex, layer: int) -> shapes.PlanNode:
    return shapes.PlanNode(
        id=vertex.id,
        parallelism=vertex.parallelism,
        operator="",
        operator_strategy="",
        description=vertex.name,
        inputs=[
            shapes.PlanInput(
                number, edge.id, edge.strategy, "pipelined_bounded", tag=edge.tag or UNSET
            )
            for number, edge in enumerate(vertex.inputs)
        ],
        optimizer_properties={},
        level=layer,
        operators=[
            shapes.PlanOperator(
                op.uid,
                op.name,
                op.kind,
                op.keyed,
                [shapes.PlanOperatorInput(edge.id, edge.strategy) for edge in op.inputs],
                op.sink,
            )
            for op in vertex.operators
        ],
    )


def job_config(history: JobHistory) -> shapes.JobConfig:
    """Return the settings of the job; secrets were masked when they were recorded."""
    settings = {} if history.began is None else history.began.configuration
    return shapes.JobConfig(
        jid=history.id,
        name=history.name,
        execution_config=shapes.ExecutionConfigInfo(
            execution_mode="PIPELINED",
            restart_strategy=settings.get(
                "restart-strategy.type", "Cluster level default restart strategy"
            ),
            job_parallelism=1 if history.began is None else history.began.parallelism,
            object_reuse_mode=settings.get("pipeline.object-reuse", "false") == "true",
            user_config={},
        ),
        configuration=dict(sorted(settings.items())),
        settings=[] if history.began is None else list(_settings(history.began)),
    )


def _settings(began: JobBegan) -> Iterator[shapes.SettingEntry]:
    """Yield all settings by key: those of the job, defaults, and the rest of Spark's."""
    origins = dict.fromkeys(began.configuration, "program") | began.origins
    found = {key: (text, "Spark") for key, text in began.spark.items()}
    found |= {key: (text, "default") for key, text in began.defaults.items()}
    found |= {key: (text, origins[key]) for key, text in began.configuration.items()}
    for key, (text, origin) in sorted(found.items()):
        yield shapes.SettingEntry(key, text[:_LONGEST_SETTING], origin)


def exceptions(history: JobHistory, limit: int = 20) -> shapes.JobExceptions:
    """Return the failures of attempts, the last one first."""
    failures = list(reversed(history.failures))
    entries = [
        shapes.ExceptionEntry(
            exception_name=failure.error,
            stacktrace=failure.trace,
            timestamp=failure.time,
            task_name=_task_name(history, failure.task, failure.subtask),
            endpoint=None,
            task_manager_id=None,
            failure_labels={},
            concurrent_exceptions=[],
            attempt=failure.number,
            subtask=failure.subtask,
        )
        for failure in failures[:limit]
    ]
    latest = failures[0] if failures else None
    return shapes.JobExceptions(
        root_exception=None if latest is None else latest.trace,
        timestamp=None if latest is None else latest.time,
        all_exceptions=[],
        truncated=history.counts.failures > len(entries),
        exception_history=shapes.ExceptionHistory(entries, history.counts.failures > len(entries)),
    )


def _task_name(history: JobHistory, operator: str | None, subtask: int | None) -> str | None:
    if operator is None or subtask is None:
        return operator
    widths = (
        v.parallelism for v in history.graph.vertices for op in v.operators if op.name == operator
    )
    return f"{operator} ({subtask + 1}/{next(widths, subtask + 1)})"


def attempts(history: JobHistory) -> shapes.Attempts:
    """The starts of the job, oldest first."""
    entries = [
        shapes.AttemptEntry(
            number=begun.number,
            start_time=begun.time,
            checkpoint=begun.checkpoint,
            path=begun.path,
            is_savepoint=begun.savepoint,
            origin=begun.origin,
            loaded_bytes=None if begun.loaded is None else begun.loaded.stored,
            loaded_local_bytes=None if begun.loaded is None else begun.loaded.local,
            start_seconds=None if begun.measured is None else _start(begun.measured),
        )
        for begun in history.attempts
    ]
    return shapes.Attempts(entries, history.counts.attempts, history.counts.failures)


def _start(measured: StartMeasured) -> shapes.StartEntry:
    return shapes.StartEntry(
        stop=measured.stop,
        delay=measured.delay,
        slots=measured.slots,
        load=measured.load,
        first_result=measured.first_result,
    )


def epochs(history: JobHistory, since: int = -1) -> shapes.Epochs:
    """Return the last epochs after ``since``, oldest first."""
    entries = [
        shapes.EpochEntry(
            epoch=one.epoch,
            start_time=one.started,
            duration=one.seconds,
            records_read=one.read,
            records=one.records,
            quota=one.quota,
            steps=one.steps,
            memory_bytes=one.memory,
            state_bytes=one.state,
            checkpoint=one.checkpoint,
        )
        for one in history.epochs
        if one.epoch > since
    ]
    return shapes.Epochs(entries, history.counts.epochs, history.counts.read)


def vertex_details(history: JobHistory, vertex: Vertex) -> shapes.VertexDetails:
    """Return a vertex with its subtasks."""
    figures = history.subtasks.figures[vertex.id]
    status, times = _task_status(history), _attempt_times(history)
    return shapes.VertexDetails(
        id=vertex.id,
        name=vertex.name,
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        now=now_ms(),
        aggregated=_aggregated(figures, status, times[2]),
        subtasks=_subtasks(history, vertex, figures, status, times),
        written={
            op.uid: sum(figure.written.get(op.uid, 0) for figure in figures)
            for op in vertex.operators
            if op.sink
        },
        metrics=list(itertools.islice(_user_metrics(history, vertex), _METRICS)),
    )


def _subtasks(
    history: JobHistory,
    vertex: Vertex,
    figures: Sequence[SubtaskFigures],
    status: str,
    times: tuple[int, int, int],
) -> list[shapes.SubtaskDetails]:
    start, end, duration = times
    attempt = history.attempts[-1].number if history.attempts else 0
    host = socket.gethostname()
    durations = dict.fromkeys(_TASK_STATUS, -1) | {status: duration}
    return [
        shapes.SubtaskDetails(
            subtask=number,
            status=status,
            attempt=attempt,
            endpoint=host,
            start_time=start,
            end_time=end,
            duration=duration,
            metrics=_io([figure]),
            taskmanager_id=f"{host}:{figure.process or os.getpid()}",
            status_duration=durations,
            watermark=figure.watermark,
            now=_vertex_now(history, vertex, [figure]),
        )
        for number, figure in enumerate(figures)
    ]


def _aggregated(figures: Sequence[SubtaskFigures], status: str, duration: int) -> shapes.Aggregated:
    return shapes.Aggregated(
        metrics=shapes.AggregatedMetrics(
            read_bytes=_spread(f.bytes_in for f in figures),
            write_bytes=_spread(f.bytes_out for f in figures),
            read_records=_spread(f.records_in for f in figures),
            write_records=_spread(f.records_out for f in figures),
            accumulated_backpressured_time=_spread(round(_MS * f.blocked) for f in figures),
            accumulated_idle_time=_spread(round(_MS * f.idle) for f in figures),
            accumulated_busy_time=_spread(round(_MS * f.busy) for f in figures),
        ),
        status_duration={status: _spread([duration] * len(figures))},
    )


def _user_metrics(history: JobHistory, vertex: Vertex) -> Iterator[shapes.OperatorMetric]:
    for op in vertex.operators:
        known = history.subtasks.metrics.get(op.uid, {})
        for name in sorted({name for values in known.values() for name in values}):
            values = [known.get(str(n), {}).get(name) for n in range(vertex.parallelism)]
            yield shapes.OperatorMetric(op.uid, name, list(map(_metric, values)))


def _metric(value: Any) -> Any:
    """Return a metric for JSON: a number, the numbers of a distribution, or text."""
    if value is None or isinstance(value, int | float) or is_spread(value):
        return value
    return str(value)[:_LONGEST_TEXT]


def _spread(numbers: Iterable[float]) -> shapes.Spread:
    found = sorted(numbers) or [0]
    at = percentile(found)
    return shapes.Spread(
        found[0], found[-1], fmean(found), sum(found), at(0.5), at(0.25), at(0.75), at(0.95)
    )


def percentile(ordered: Sequence[float]) -> Callable[[float], float]:
    """Return a function that finds percentiles in sorted numbers."""
    return lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def watermarks(history: JobHistory, vertex: Vertex) -> list[shapes.Metric]:
    """Return the watermark of each subtask, as Flink's metrics."""
    return [
        shapes.Metric(f"{number}.currentInputWatermark", str(figure.watermark))
        for number, figure in enumerate(history.subtasks.figures[vertex.id])
        if figure.watermark is not None
    ]


def back_pressure(history: JobHistory, vertex: Vertex) -> shapes.BackPressure:
    """Return the back pressure of each subtask."""
    figures = history.subtasks.figures[vertex.id]
    subtasks = [
        shapes.SubtaskBackPressure(
            subtask=number,
            level=_level(figure.blocked_now / _MS),
            ratio=figure.blocked_now / _MS,
            idle_ratio=figure.idle_now / _MS,
            busy_ratio=figure.busy_now / _MS,
        )
        for number, figure in enumerate(figures)
    ]
    worst = max((figure.blocked_now for figure in figures), default=0) / _MS
    return shapes.BackPressure("ok", _level(worst), history.subtasks.time, subtasks)
