"""All endpoints, in one table: the server and its OpenAPI description are made from it.

A handler gets a `Call` and returns one of the `shapes`. It runs in the event loop, so that it must
be quick; ``slow`` ones run in a thread.
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
from holdfast.rest import (
    action_shapes,
    checkpoint_shapes,
    checkpoint_views,
    metrics,
    rescale_shapes,
    rescale_views,
    shapes,
    state_shapes,
    state_views,
    views,
)
from holdfast.rest.actions import (
    CheckpointRequest,
    Operations,
    SavepointRequest,
    StopRequest,
    confined,
)
from holdfast.rest.errors import Answer
from holdfast.rest.site import ServedJob, Site

__all__ = ["ENDPOINTS", "PATTERNS", "Call", "Endpoint", "Parameter"]

T = TypeVar("T")

_ID: Final = r"[0-9a-f]{32}"
#: what a part of a path may be
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
class Call:
    """A request, after all checks.

    Attributes:
        query: its parameters, each of the type that the endpoint says.
        owner: who asks has proved to be the user that the job belongs to.
    """

    site: Site
    operations: Operations
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    owner: bool

    @cached_property
    def job(self) -> ServedJob:
        """The job that the path names."""
        job = self.site.job(self.path["job_id"])
        if job is None:
            raise Answer(404, f"there is no job of the id {self.path['job_id']}")
        return job

    def look(self, view: Callable[[JobHistory], T]) -> T:
        """What a view makes of the job's history."""
        return self.job.history.look(view)

    def look_at_vertex(self, view: Callable[[JobHistory, Vertex], T]) -> T:
        """What a view makes of the vertex that the path names."""

        def found(history: JobHistory) -> T:
            vertex = history.graph.vertex(self.path["vertex_id"])
            if vertex is None:
                raise Answer(404, f"the job has no vertex of the id {self.path['vertex_id']}")
            return view(history, vertex)

        return self.look(found)

    def look_at_checkpoint(self, view: Callable[[JobHistory, CheckpointSeen], T]) -> T:
        """What a view makes of the checkpoint that the path names."""

        def found(history: JobHistory) -> T:
            seen = history.checkpoints.get(int(self.path["checkpoint_id"]))
            if seen is None:
                raise Answer(
                    404, f"nothing is known of a checkpoint {self.path['checkpoint_id']} any more"
                )
            return view(history, seen)

        return self.look(found)


@dataclass(frozen=True)
class Endpoint:
    """One method of one path.

    Attributes:
        answer: the type of what it returns.
        acts: it changes something, so that looking is not enough of a right.
        slow: it may take a while.
        pure: what it answers is made of the job's history alone, and the same for all clients.
        body: the type of what is sent, if anything is.
    """

    method: str
    path: str
    answer: Any
    handle: Callable[[Call], Any]
    summary: str
    acts: bool = False
    slow: bool = False
    pure: bool = False
    query: tuple[Parameter, ...] = ()
    body: Any = None
    status: int = 200
    errors: Mapping[int, str] = field(default_factory=dict)


def _get(
    path: str, answer: Any, summary: str, handle: Callable[[Call], Any], **more: Any
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


def _checkpoint_of_vertex(call: Call) -> checkpoint_shapes.TaskCheckpointDetails:
    vertex = call.look_at_vertex(lambda history, vertex: vertex)
    details = call.look_at_checkpoint(
        lambda history, seen: checkpoint_views.task_details(seen, vertex)
    )
    if details is None:
        checkpoint = call.path["checkpoint_id"]
        raise Answer(404, f"nothing is known of the subtasks of checkpoint {checkpoint} any more")
    return details


def _exceptions(call: Call) -> shapes.JobExceptions:
    limit = call.query.get("maxExceptions", 20)
    return call.look(lambda history: views.exceptions(history, limit))


def _epochs(call: Call) -> shapes.Epochs:
    return call.look(lambda history: views.epochs(history, call.query.get("since", -1)))


def _job_metrics(call: Call) -> list[shapes.Metric]:
    return call.look(lambda history: metrics.job_metrics(history, call.query.get("get")))


def _vertex_metrics(call: Call) -> list[shapes.Metric]:
    wanted = call.query.get("get")
    return call.look_at_vertex(lambda h, vertex: metrics.vertex_metrics(h, vertex, wanted))


def _compared(call: Call) -> state_shapes.Comparison:
    before, after = int(call.path["checkpoint_id"]), int(call.path["other_id"])
    return state_views.compared(call.job, before, after)


def _trigger_checkpoint(call: Call) -> action_shapes.TriggerAnswer:
    body: CheckpointRequest = call.body
    return call.operations.start(call.job, "checkpoint", body.trigger_id, call.job.checkpoint)


def _trigger_savepoint(call: Call) -> action_shapes.TriggerAnswer:
    job, body = call.job, call.body
    directory = confined(body.target_directory, job, call.owner)
    return call.operations.start(
        job, "savepoint", body.trigger_id, lambda: job.savepoint(directory, body.cancel_job)
    )


def _stop(call: Call) -> action_shapes.TriggerAnswer:
    job, body = call.job, call.body
    directory = confined(body.target_directory, job, call.owner)
    return call.operations.start(
        job, "savepoint", body.trigger_id, lambda: job.savepoint(directory, True, body.drain)
    )


def _cancel(call: Call) -> shapes.Nothing:
    call.job.cancel()
    return shapes.Nothing()


def _rescale(call: Call) -> action_shapes.TriggerAnswer:
    job, parallelism = call.job, call.query["parallelism"]
    return call.operations.start(job, "rescaling", None, lambda: job.rescale(parallelism))


def _requirements(history: JobHistory) -> dict[str, action_shapes.VertexRequirements]:
    return {
        vertex.id: action_shapes.VertexRequirements(
            action_shapes.ParallelismBounds(1, vertex.parallelism)
        )
        for vertex in history.graph.vertices
    }


def _require(call: Call) -> shapes.Nothing:
    job, wanted = call.job, call.body
    vertices = {vertex.id: vertex for vertex in job.history.graph.vertices}
    unknown = sorted(set(wanted) - set(vertices))
    if unknown or not wanted:
        raise Answer(400, f"the job has no vertices {unknown}; it has {sorted(vertices)}")
    by_uid: dict[str, int] = {}
    for vertex_id, requirements in wanted.items():
        bounds = requirements.parallelism
        if not 1 <= bounds.lower_bound <= bounds.upper_bound:
            raise Answer(400, "a parallelism must be at least 1, and its lower bound the lower one")
        by_uid |= {op.uid: bounds.upper_bound for op in vertices[vertex_id].operators}
    job.rescale(by_uid)
    return shapes.Nothing()


_WHOLE: Final = {"type": "integer", "minimum": 0, "maximum": 2**53}
_TEXT: Final = {"type": "string", "maxLength": 1000}
_WANTED: Final = Parameter("get", {"type": "string", "maxLength": 4000})
_CONFLICT: Final = {409: "The job does not run, or cannot do that."}

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    _get(
        "/overview", shapes.Overview, "How many jobs there are.", lambda c: views.overview(c.site)
    ),
    _get("/config", shapes.Config, "What a page needs to know.", lambda c: views.config(c.site)),
    _get("/jobs", shapes.Jobs, "The ids of all jobs.", lambda c: views.job_ids(c.site)),
    _get(
        "/jobs/overview",
        shapes.JobsOverview,
        "All jobs, in short.",
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
    _job("/config", shapes.JobConfig, "The settings of a job, secrets masked.", views.job_config),
    _get(
        "/jobs/{job_id}/exceptions",
        shapes.JobExceptions,
        "Why attempts of a job failed.",
        _exceptions,
        pure=True,
        query=(Parameter("maxExceptions", {"type": "integer", "minimum": 0, "maximum": 1000}),),
    ),
    _job("/attempts", shapes.Attempts, "The starts of a job.", views.attempts),
    _get(
        "/jobs/{job_id}/epochs",
        shapes.Epochs,
        "The last epochs of a job.",
        _epochs,
        pure=True,
        query=(Parameter("since", {"type": "integer", "minimum": -1, "maximum": 2**53}),),
    ),
    _vertex("", shapes.VertexDetails, "A vertex and its subtasks.", views.vertex_details),
    _vertex(
        "/watermarks", list[shapes.Metric], "The watermarks of its subtasks.", views.watermarks
    ),
    _vertex(
        "/backpressure", shapes.BackPressure, "Whether it waits for others.", views.back_pressure
    ),
    _get(
        "/jobs/{job_id}/metrics",
        list[shapes.Metric],
        "The metrics of a job: their names, or values.",
        _job_metrics,
        pure=True,
        query=(_WANTED,),
    ),
    _get(
        "/jobs/{job_id}/vertices/{vertex_id}/metrics",
        list[shapes.Metric],
        "The metrics of a vertex: their names, or values.",
        _vertex_metrics,
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
        "What a key has in a state, as of the last epoch. The key, and the window, are JSON.",
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
        "/jobs/{job_id}/checkpoints/compare/{checkpoint_id}/{other_id}",
        state_shapes.Comparison,
        "How the states of two checkpoints differ.",
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
        "How a job takes checkpoints.",
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
        "What became of a checkpoint that was asked for.",
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
        "What became of a savepoint that was asked for.",
        lambda c: c.operations.savepoint(c.job, c.path["trigger_id"]),
    ),
    Endpoint(
        "POST",
        "/jobs/{job_id}/stop",
        action_shapes.TriggerAnswer,
        _stop,
        "End a job with a savepoint.",
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
        "Give a job another parallelism.",
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
        "What became of a change of parallelism.",
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
        "How many changes of a job's parallelism ended how.",
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
        "Give vertices another parallelism.",
        acts=True,
        body=dict[str, action_shapes.VertexRequirements],
        errors=_CONFLICT,
    ),
)


def matches(name: str, text: str) -> bool:
    """Whether a part of a path is what it must be."""
    return re.fullmatch(PATTERNS[name], text, re.ASCII) is not None
