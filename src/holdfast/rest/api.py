"""The table of all endpoints, from which the server and its OpenAPI description are generated.

A handler gets an `EndpointCall` and returns one of the `shapes`. It runs in the event loop, so it
must be fast; ``slow`` ones run in a thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

from holdfast.history.events import CheckpointSeen
from holdfast.history.job import JobHistory
from holdfast.plan.vertices import Vertex
from holdfast.rest import metrics
from holdfast.rest.actions import (
    CheckpointRequest,
    Operations,
    SavepointRequest,
    StopRequest,
    confined,
)
from holdfast.rest.errors import Refusal
from holdfast.rest.shapes import actions as action_shapes
from holdfast.rest.shapes import checkpoints as checkpoint_shapes
from holdfast.rest.shapes import jobs as shapes
from holdfast.rest.shapes import logs as log_shapes
from holdfast.rest.shapes import rescales as rescale_shapes
from holdfast.rest.shapes import series as series_shapes
from holdfast.rest.shapes import state as state_shapes
from holdfast.rest.site import ServedJob, Site
from holdfast.rest.views import checkpoints as checkpoint_views
from holdfast.rest.views import jobs as views
from holdfast.rest.views import logs as log_views
from holdfast.rest.views import rescales as rescale_views
from holdfast.rest.views import series as series_views
from holdfast.rest.views import state as state_views
from holdfast.rest.views import state_entries

T = TypeVar("T")

_ID: Final = r"[0-9a-f]{32}"
#: the patterns of the parts of a path
PATTERNS: Final = {
    "job_id": _ID,
    "vertex_id": _ID,
    "trigger_id": _ID,
    "checkpoint_id": r"[0-9]{1,18}",
    "other_id": r"[0-9]{1,18}",
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a query, with its JSON schema."""

    name: str
    schema: Mapping[str, Any]
    required: bool = False


@dataclass(frozen=True)
class EndpointCall:
    """A request, after all checks.

    Attributes:
        query: its parameters, converted to the types that the endpoint declares.
        owner: whether the client is authenticated as the user that the job belongs to.
    """

    site: Site
    operations: Operations
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    owner: bool

    @cached_property
    def job(self) -> ServedJob:
        """Return the job of the path."""
        job = self.site.job(self.path["job_id"])
        if job is None:
            raise Refusal(404, f"there is no job with the id {self.path['job_id']}")
        return job

    def look(self, view: Callable[[JobHistory], T]) -> T:
        """Return the result of a view of the job's history."""
        return self.job.history.look(view)

    def look_at_vertex(self, view: Callable[[JobHistory, Vertex], T]) -> T:
        """Return the result of a view of the vertex of the path."""

        def found(history: JobHistory) -> T:
            vertex = history.graph.vertex(self.path["vertex_id"])
            if vertex is None:
                raise Refusal(404, f"the job has no vertex with the id {self.path['vertex_id']}")
            return view(history, vertex)

        return self.look(found)

    def look_at_checkpoint(self, view: Callable[[JobHistory, CheckpointSeen], T]) -> T:
        """Return the result of a view of the checkpoint of the path."""

        def found(history: JobHistory) -> T:
            seen = history.checkpoints.get(int(self.path["checkpoint_id"]))
            if seen is None:
                raise Refusal(
                    404, f"nothing is known of a checkpoint {self.path['checkpoint_id']} any more"
                )
            return view(history, seen)

        return self.look(found)


@dataclass(frozen=True)
class Endpoint:
    """One method of one path.

    Attributes:
        answer: the type of the response.
        acts: whether it changes something, so that write access is required.
        slow: whether it may take a while.
        pure: whether the response depends on the job's history only, and not on the client.
        body: the type of the request body, if there is one.
    """

    method: str
    path: str
    answer: Any
    handle: Callable[[EndpointCall], Any]
    summary: str
    acts: bool = False
    slow: bool = False
    pure: bool = False
    query: tuple[Parameter, ...] = ()
    body: Any = None
    status: int = 200
    errors: Mapping[int, str] = field(default_factory=dict)


def _get(
    path: str, answer: Any, summary: str, handle: Callable[[EndpointCall], Any], **more: Any
) -> Endpoint:
    return Endpoint("GET", path, answer, handle, summary, **more)


def _job(path: str, answer: Any, summary: str, view: Callable[[JobHistory], Any]) -> Endpoint:
    full = f"/jobs/{{job_id}}{path}"
    return _get(full, answer, summary, lambda call: call.look(view), pure=True)


def _vertex(
    path: str, answer: Any, summary: str, view: Callable[[JobHistory, Vertex], Any]
) -> Endpoint:
    full = f"/jobs/{{job_id}}/vertices/{{vertex_id}}{path}"
    return _get(full, answer, summary, lambda call: call.look_at_vertex(view), pure=True)


def _checkpoint_of_vertex(call: EndpointCall) -> checkpoint_shapes.TaskCheckpointDetails:
    vertex = call.look_at_vertex(lambda history, vertex: vertex)
    details = call.look_at_checkpoint(
        lambda history, seen: checkpoint_views.task_details(seen, vertex)
    )
    if details is None:
        checkpoint = call.path["checkpoint_id"]
        raise Refusal(404, f"nothing is known of the subtasks of checkpoint {checkpoint} any more")
    return details


def _compared(call: EndpointCall) -> state_shapes.Comparison:
    before, after = int(call.path["checkpoint_id"]), int(call.path["other_id"])
    return state_views.compared(call.job, before, after)


def _trigger_checkpoint(call: EndpointCall) -> action_shapes.TriggerAnswer:
    body: CheckpointRequest = call.body
    return call.operations.start(call.job, "checkpoint", body.trigger_id, call.job.checkpoint)


def _trigger_savepoint(call: EndpointCall) -> action_shapes.TriggerAnswer:
    job, body = call.job, call.body
    directory = confined(body.target_directory, job, call.owner)
    return call.operations.start(
        job, "savepoint", body.trigger_id, lambda: job.savepoint(directory, body.cancel_job)
    )


def _stop(call: EndpointCall) -> action_shapes.TriggerAnswer:
    job, body = call.job, call.body
    directory = confined(body.target_directory, job, call.owner)
    return call.operations.start(
        job, "savepoint", body.trigger_id, lambda: job.savepoint(directory, True, body.drain)
    )


def _cancel(call: EndpointCall) -> shapes.Nothing:
    call.job.cancel()
    return shapes.Nothing()


def _rescale(call: EndpointCall) -> action_shapes.TriggerAnswer:
    job, parallelism = call.job, call.query["parallelism"]
    return call.operations.start(job, "rescaling", None, lambda: job.rescale(parallelism))


def _requirements(history: JobHistory) -> dict[str, action_shapes.VertexRequirements]:
    return {
        vertex.id: action_shapes.VertexRequirements(
            action_shapes.ParallelismBounds(1, vertex.parallelism)
        )
        for vertex in history.graph.vertices
    }


def _require(call: EndpointCall) -> shapes.Nothing:
    job, wanted = call.job, call.body
    vertices = {vertex.id: vertex for vertex in job.history.graph.vertices}
    unknown = sorted(set(wanted) - set(vertices))
    if unknown or not wanted:
        raise Refusal(400, f"the job has no vertices {unknown}; it has {sorted(vertices)}")
    by_uid: dict[str, int] = {}
    for vertex_id, requirements in wanted.items():
        bounds = requirements.parallelism
        if not 1 <= bounds.lower_bound <= bounds.upper_bound:
            raise Refusal(
                400,
                "the bounds of a parallelism must be at least 1, and in order",
            )
        by_uid |= {op.uid: bounds.upper_bound for op in vertices[vertex_id].operators}
    job.rescale(by_uid)
    return shapes.Nothing()


_WHOLE: Final = {"type": "integer", "minimum": 0, "maximum": 2**53}
_TEXT: Final = {"type": "string", "maxLength": 1000}
_WANTED: Final = Parameter("get", {"type": "string", "maxLength": 4000})
_CONFLICT: Final = {409: "The job is not running, or does not support this."}

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    _get("/overview", shapes.Overview, "The number of jobs.", lambda c: views.overview(c.site)),
    _get("/config", shapes.Config, "The settings of the web UI.", lambda c: views.config(c.site)),
    _get("/jobs", shapes.Jobs, "The ids of all jobs.", lambda c: views.job_ids(c.site)),
    _get(
        "/jobs/overview",
        shapes.JobsOverview,
        "A summary of all jobs.",
        lambda c: views.jobs_overview(c.site),
    ),
    _job("", shapes.JobDetails, "A job, its vertices and its plan.", views.job_details),
    Endpoint(
        "PATCH",
        "/jobs/{job_id}",
        shapes.Nothing,
        _cancel,
        "Cancel a job.",
        acts=True,
        query=(Parameter("mode", {"type": "string", "enum": ["cancel"]}),),
        status=202,
        errors=_CONFLICT,
    ),
    _job("/plan", shapes.PlanAnswer, "The plan of a job.", views.job_plan),
    _job(
        "/config", shapes.JobConfig, "The settings of a job, with secrets masked.", views.job_config
    ),
    _get(
        "/jobs/{job_id}/exceptions",
        shapes.JobExceptions,
        "Why attempts of a job failed.",
        lambda c: c.look(lambda h: views.exceptions(h, c.query.get("maxExceptions", 20))),
        pure=True,
        query=(Parameter("maxExceptions", {"type": "integer", "minimum": 0, "maximum": 1000}),),
    ),
    _job("/attempts", shapes.Attempts, "The attempts of a job.", views.attempts),
    _get(
        "/jobs/{job_id}/epochs",
        shapes.Epochs,
        "The last epochs of a job.",
        lambda c: c.look(lambda h: views.epochs(h, c.query.get("since", -1))),
        pure=True,
        query=(Parameter("since", {"type": "integer", "minimum": -1, "maximum": 2**53}),),
    ),
    _get(
        "/jobs/{job_id}/series",
        series_shapes.Series,
        "The figures of a job over time: rates, load, watermarks, checkpoints, users' metrics.",
        lambda c: c.look(
            lambda h: series_views.series(
                h, c.query.get("since", 0), c.query.get("points", series_views.POINTS)
            )
        ),
        pure=True,
        query=(
            Parameter("since", _WHOLE),
            Parameter("points", {"type": "integer", "minimum": 1, "maximum": 1000}),
        ),
    ),
    _get(
        "/jobs/{job_id}/logs",
        log_shapes.Logs,
        "The last lines that functions of a job logged, of an operator and from a level on.",
        lambda c: log_views.logs(c.job, c.query),
        query=(
            Parameter("operator", _TEXT),
            Parameter("level", {"type": "string", "enum": list(log_views.LEVELS)}),
            Parameter("lines", {"type": "integer", "minimum": 1, "maximum": 1000}),
        ),
    ),
    _vertex("", shapes.VertexDetails, "A vertex and its subtasks.", views.vertex_details),
    _vertex(
        "/watermarks", list[shapes.Metric], "The watermarks of its subtasks.", views.watermarks
    ),
    _vertex(
        "/backpressure",
        shapes.BackPressure,
        "The back pressure of its subtasks.",
        views.back_pressure,
    ),
    _get(
        "/jobs/{job_id}/metrics",
        list[shapes.Metric],
        "The metrics of a job: their names, or values.",
        lambda c: c.look(lambda h: metrics.job_metrics(h, c.query.get("get"))),
        pure=True,
        query=(_WANTED,),
    ),
    _get(
        "/jobs/{job_id}/vertices/{vertex_id}/metrics",
        list[shapes.Metric],
        "The metrics of a vertex: their names, or values.",
        lambda c: c.look_at_vertex(lambda h, v: metrics.vertex_metrics(h, v, c.query.get("get"))),
        pure=True,
        query=(_WANTED,),
    ),
    _get(
        "/jobs/{job_id}/state",
        state_shapes.StateOverview,
        "The operators and states of a checkpoint.",
        lambda c: state_views.states(c.job, c.query.get("checkpoint")),
        query=(Parameter("checkpoint", _WHOLE),),
        slow=True,
        errors=_CONFLICT,
    ),
    _get(
        "/jobs/{job_id}/state/value",
        state_shapes.StateValue,
        "The value of a key in a state, as of the last epoch. The key and the window are JSON.",
        lambda c: state_views.looked_up(c.job, c.query),
        query=(
            Parameter("operator", _TEXT, True),
            Parameter("state", _TEXT, True),
            Parameter("key", {"type": "string", "maxLength": 4000}, True),
            Parameter("window", _TEXT),
        ),
        slow=True,
        errors=_CONFLICT,
    ),
    _get(
        "/jobs/{job_id}/state/entries",
        state_shapes.StateEntries,
        "Entries of a state in a checkpoint, page by page.",
        lambda c: state_entries.entries(c.job, c.query),
        query=(
            Parameter("operator", _TEXT, True),
            Parameter("state", _TEXT, True),
            Parameter("windowed", {"type": "string", "enum": ["true", "false"]}),
            Parameter("checkpoint", _WHOLE),
            Parameter("after", {"type": "string", "maxLength": 40}),
            Parameter("rows", {"type": "integer", "minimum": 1, "maximum": 200}),
        ),
        slow=True,
        errors=_CONFLICT,
    ),
    _get(
        "/jobs/{job_id}/checkpoints/compare/{checkpoint_id}/{other_id}",
        state_shapes.Comparison,
        "The differences between the states of two checkpoints.",
        _compared,
        slow=True,
        errors=_CONFLICT,
    ),
    _job(
        "/checkpoints",
        checkpoint_shapes.Checkpoints,
        "The checkpoints of a job.",
        checkpoint_views.checkpoints,
    ),
    _job(
        "/checkpoints/config",
        checkpoint_shapes.CheckpointsConfig,
        "The checkpoint settings of a job.",
        checkpoint_views.checkpoints_config,
    ),
    _get(
        "/jobs/{job_id}/checkpoints/details/{checkpoint_id}",
        checkpoint_shapes.CheckpointInfo,
        "A checkpoint, vertex by vertex.",
        lambda c: c.look_at_checkpoint(checkpoint_views.checkpoint_details),
        pure=True,
    ),
    _get(
        "/jobs/{job_id}/checkpoints/details/{checkpoint_id}/subtasks/{vertex_id}",
        checkpoint_shapes.TaskCheckpointDetails,
        "The part of each subtask of a vertex in a checkpoint.",
        _checkpoint_of_vertex,
        pure=True,
    ),
    Endpoint(
        "POST",
        "/jobs/{job_id}/checkpoints",
        action_shapes.TriggerAnswer,
        _trigger_checkpoint,
        "Take a checkpoint now.",
        acts=True,
        body=CheckpointRequest,
        status=202,
        errors=_CONFLICT,
    ),
    _get(
        "/jobs/{job_id}/checkpoints/{trigger_id}",
        action_shapes.CheckpointOperation,
        "The status of a requested checkpoint.",
        lambda c: c.operations.checkpoint(c.job, c.path["trigger_id"]),
    ),
    Endpoint(
        "POST",
        "/jobs/{job_id}/savepoints",
        action_shapes.TriggerAnswer,
        _trigger_savepoint,
        "Take a savepoint.",
        acts=True,
        body=SavepointRequest,
        status=202,
        errors=_CONFLICT,
    ),
    _get(
        "/jobs/{job_id}/savepoints/{trigger_id}",
        action_shapes.SavepointOperation,
        "The status of a requested savepoint.",
        lambda c: c.operations.savepoint(c.job, c.path["trigger_id"]),
    ),
    Endpoint(
        "POST",
        "/jobs/{job_id}/stop",
        action_shapes.TriggerAnswer,
        _stop,
        "Stop a job with a savepoint.",
        acts=True,
        body=StopRequest,
        status=202,
        errors=_CONFLICT,
    ),
    Endpoint(
        "PATCH",
        "/jobs/{job_id}/rescaling",
        action_shapes.TriggerAnswer,
        _rescale,
        "Change the parallelism of a job.",
        acts=True,
        query=(
            Parameter("parallelism", {"type": "integer", "minimum": 1, "maximum": 32768}, True),
        ),
        status=202,
        errors=_CONFLICT,
    ),
    _get(
        "/jobs/{job_id}/rescaling/{trigger_id}",
        action_shapes.RescalingOperation,
        "The status of a requested change of parallelism.",
        lambda c: c.operations.rescaling(c.job, c.path["trigger_id"]),
    ),
    _job(
        "/rescales/history",
        list[rescale_shapes.JobRescaleDetails],
        "The changes of a job's parallelism, newest first.",
        rescale_views.rescales_history,
    ),
    _job(
        "/rescales/overview",
        rescale_shapes.JobRescalesOverview,
        "The number of changes of a job's parallelism, by result.",
        rescale_views.rescales_overview,
    ),
    _job(
        "/resource-requirements",
        dict[str, action_shapes.VertexRequirements],
        "The parallelism of each vertex.",
        _requirements,
    ),
    Endpoint(
        "PUT",
        "/jobs/{job_id}/resource-requirements",
        shapes.Nothing,
        _require,
        "Change the parallelism of vertices.",
        acts=True,
        body=dict[str, action_shapes.VertexRequirements],
        errors=_CONFLICT,
    ),
)


def matches(name: str, text: str) -> bool:
    """Return whether a part of a path matches its pattern."""
    return re.fullmatch(PATTERNS[name], text, re.ASCII) is not None
