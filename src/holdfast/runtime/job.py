"""What the workers get of a job, once: its plan, its functions and its settings.

Each function is pickled by itself, so that every subtask makes its own object from it, and so that
one that cannot be pickled is found before anything runs, with the member that is at fault.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import cloudpickle

from holdfast.common._cloudpickle import dumps
from holdfast.common.port_options import ANY_PORT, Ports
from holdfast.errors import PickleError
from holdfast.filesystem import configure
from holdfast.graph.nodes import FunctionOperation, SourceOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.runtime.faults import Faults
from holdfast.runtime.logs import levels
from holdfast.state.settings import StateSettings


def new_key() -> bytes:
    """Return the key of a start of a job."""
    return secrets.token_bytes(32)


@dataclass(frozen=True)
class JobCode:
    """Everything about a job that does not change from epoch to epoch.

    Attributes:
        id: unique to this start of the job.
        plan: the plan, without the function objects.
        functions: the pickled function of each operator that has one.
        directory: its own, which goes when it ends.
        state_directory: the address of its state files.
        staging_directory: the address of what its sinks keep until a checkpoint is complete.
        parameters: the global job parameters.
        main_classes: classes of the user's script, so that their instances can be records.
        one_host: whether all workers are on the driver's machine.
        faults: failures on order, for tests.
        file_systems: Hadoop's settings of file systems.
        state: how its subtasks keep their state.
        log_levels: those that are set in the driver, by logger.
        key: known to the processes of this start of the job, and to nobody else.
        watermark_interval_ms: how often watermarks are made, where no epoch ends for it.
        aligns: a checkpoint waits at each input for the others: every record counts once in it.
        certificate: with what its processes encrypt their connections, if they do; in PEM.
        functions_stay: whether a function object lives as long as its attempt, in one process.
        ports: at which its processes listen.
    """

    id: str
    plan: Plan
    functions: Mapping[int, bytes]
    directory: str
    state_directory: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    main_classes: Mapping[str, type] = field(default_factory=dict)
    one_host: bool = True
    faults: Faults = field(default_factory=Faults)
    file_systems: Mapping[str, str] = field(default_factory=dict)
    state: StateSettings = field(default_factory=StateSettings)
    staging_directory: str = ""
    log_levels: Mapping[str, int] = field(default_factory=dict)
    key: bytes = field(default_factory=new_key, repr=False)
    watermark_interval_ms: int = 200
    aligns: bool = True
    functions_stay: bool = False
    certificate: bytes = field(default=b"", repr=False)
    ports: Ports = ANY_PORT

    def new_function(self, operator: int) -> Any:
        """A function object of its own for one subtask."""
        data = self.functions.get(operator)
        return None if data is None else cloudpickle.loads(data)

    def main_classes_pickled(self) -> bytes:
        """The script's classes by value, for another process."""
        return dumps(dict(self.main_classes))


@dataclass(frozen=True)
class _Parcel:
    """A pickled job with what is needed to unpickle it."""

    path: tuple[str, ...]
    job: bytes


def make_job_code(
    job_id: str,
    plan: Plan,
    directory: str,
    parameters: Mapping[str, str] | None = None,
    one_host: bool = True,
    state_directory: str = "",
    faults: Faults | None = None,
    file_systems: Mapping[str, str] | None = None,
    state: StateSettings | None = None,
    staging_directory: str = "",
    key: bytes | None = None,
    watermark_interval_ms: int = 200,
    aligns: bool = True,
    functions_stay: bool = False,
    certificate: bytes = b"",
    ports: Ports = ANY_PORT,
) -> JobCode:
    """Take the functions out of the plan and pickle them.

    Raises:
        PickleError: when a function or something it refers to cannot be pickled.
    """
    functions = {}
    operators = {}
    for op in plan.operators.values():
        operation = op.node.operation
        if isinstance(operation, FunctionOperation):
            functions[op.id] = _pickle("the function", operation.function, op)
            bare = replace(op.node, operation=replace(operation, function=None))
            op = replace(op, node=bare)
        operators[op.id] = op
        for what, part in _other_parts(op):
            _pickle(what, part, op)
    return JobCode(
        job_id,
        replace(plan, operators=operators),
        functions,
        directory,
        state_directory,
        dict(parameters or {}),
        main_classes(),
        one_host,
        faults or Faults(),
        dict(file_systems or {}),
        state or StateSettings(),
        staging_directory,
        levels(),
        key or new_key(),
        watermark_interval_ms,
        aligns,
        functions_stay,
        certificate,
        ports,
    )


def pack(job: JobCode, paths: Iterable[str] = ()) -> bytes:
    """The job as bytes; the workers import from these paths too."""
    return dumps(_Parcel((*paths, *sys.path), dumps(job)))


def unpack(data: bytes) -> JobCode:
    """The job, in a worker; the modules that the program could import can be imported here too."""
    parcel: _Parcel = cloudpickle.loads(data)
    sys.path.extend(path for path in parcel.path if path not in sys.path)
    job: JobCode = cloudpickle.loads(parcel.job)
    configure(job.file_systems)
    _adopt_main_classes(job)
    return job


def main_classes() -> dict[str, type]:
    """The classes that the program's own script defines."""
    return {
        name: value
        for name, value in vars(sys.modules["__main__"]).items()
        if isinstance(value, type) and value.__module__ == "__main__" and _can_pickle(value)
    }


def _adopt_main_classes(job: JobCode) -> None:
    """Put the script's classes where pickle looks for them: records need no class by value then."""
    module = sys.modules.setdefault("__main__", ModuleType("__main__"))
    for name, cls in job.main_classes.items():
        setattr(module, name, cls)


def _other_parts(op: PlannedOperator) -> Iterator[tuple[str, Any]]:
    """What of the user's an operator has besides its function."""
    operation = op.node.operation
    if isinstance(operation, SourceOperation):
        yield "the source", operation.source
    for edge in op.node.inputs:
        yield "the key selector", getattr(edge.partitioning, "selector", None)
        yield "the partitioner", getattr(edge.partitioning, "partitioner", None)
    yield "the settings", op


def _pickle(what: str, value: Any, op: PlannedOperator) -> bytes:
    try:
        return dumps(value)
    except Exception as error:
        at_fault = _member_at_fault(value) or repr(value)
        raise PickleError(
            f"{what} of operator '{op.name}' cannot be sent to the workers: "
            f"{at_fault} cannot be pickled ({type(error).__name__}: {error}); "
            "create it in open() instead, or leave it out with __getstate__"
        ) from error


def _can_pickle(value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True


def _member_at_fault(value: Any, depth: int = 3) -> str:
    """The innermost member that cannot be pickled, and where it is."""
    for owner, name, member in _members(value) if depth else ():
        if not _can_pickle(member):
            inner = _member_at_fault(member, depth - 1)
            return (
                f"{owner} '{name}' ({_type_name(member)})"
                if not inner
                else (f"{inner} of {owner} '{name}'")
            )
    return ""


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _members(value: Any) -> Iterator[tuple[str, str, Any]]:
    for name, member in getattr(value, "__dict__", {}).items():
        yield "its field", name, member
    code, closure = getattr(value, "__code__", None), getattr(value, "__closure__", None)
    if code is not None:
        for name, cell in zip(code.co_freevars, closure or (), strict=False):
            yield "the variable", name, cell.cell_contents
        for name in code.co_names:
            if name in value.__globals__:
                yield "the global", name, value.__globals__[name]
