"""The code of a job, which workers get once: its plan, its functions and its settings.

Each function is pickled separately, so that every subtask creates its own object from it. A
function that cannot be pickled is found before anything runs, and so is the member at fault.
"""

from __future__ import annotations

import inspect
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final

import cloudpickle

from holdfast.common._cloudpickle import dumps, know_sources, source_lines
from holdfast.common.options.ports import ANY_PORT, Ports
from holdfast.errors import HoldfastError, PickleError
from holdfast.filesystem import configure, join, mount
from holdfast.graph.operations import FunctionOperation, SourceOperation
from holdfast.plan.model import Plan, PlannedOperator
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.driver_files import DriverFileSystem, driver_root
from holdfast.runtime.worker.injected_faults import Faults
from holdfast.runtime.worker.logs import levels
from holdfast.state.settings import StateSettings

#: the subdirectory for the rows that Spark writes, in the job's directory or that of staged output
ROWS: Final = "rows"


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
        directory: the address of its own directory, which all workers can access and which is
            deleted when the job ends; empty if there is none.
        state_directory: the address of its state files.
        staging_directory: the address of what its sinks keep until a checkpoint is complete.
        parameters: the global job parameters.
        main_classes: classes of the user's script, so that their instances can be records.
        one_host: whether all workers are on the driver's machine.
        faults: the faults to inject in a test.
        file_systems: Hadoop's settings of file systems.
        state: how its subtasks keep their state.
        log_levels: the levels that are set in the driver, by logger.
        key: a secret that only the processes of this start of the job have.
        watermark_interval_ms: how often watermarks are generated, if not at the end of epochs.
        aligns: a checkpoint aligns the inputs of a subtask: every record counts exactly once in it.
        certificate: encrypts the connections of its processes, if it is not empty; in PEM.
        functions_stay: whether a function object lives as long as its attempt, in one process.
        ports: the ports on which its processes may listen.
        desk: the address of the driver's desk.
        sources: the lines of the files whose functions are pickled by value, for tracebacks.
        keeps_rows: whether rows that Spark writes last as long as the checkpoints.
        heartbeat: the seconds without messages after which another process is considered lost.
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
    desk: Address | None = field(default=None, repr=False)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    keeps_rows: bool = False
    heartbeat: float = 10.0

    def new_function(self, operator: int) -> Any:
        """Return a new function object for one subtask."""
        data = self.functions.get(operator)
        return None if data is None else cloudpickle.loads(data)

    @property
    def rows_directory(self) -> str:
        """Return the address of the directory for the rows that Spark writes."""
        if self.keeps_rows:
            return join(self.staging_directory, ROWS, self.id)
        return join(self.directory or self.staging_directory, ROWS)

    def main_classes_pickled(self) -> bytes:
        """Return the script's classes, pickled by value for another process."""
        return dumps(dict(self.main_classes))


@dataclass(frozen=True)
class _Parcel:
    """A pickled job with what is needed to unpickle it.

    Attributes:
        path: where modules are imported from.
        arguments: the program's ``sys.argv``, which a module or a function may read.
    """

    path: tuple[str, ...]
    arguments: tuple[str, ...]
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
    desk: Address | None = None,
    keeps_rows: bool = False,
    heartbeat: float = 10.0,
) -> JobCode:
    """Take the functions out of the plan and pickle them.

    Raises:
        PickleError: when a function or something it refers to cannot be pickled.
    """
    bare, functions, files = _without_functions(plan)
    return JobCode(
        job_id,
        bare,
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
        desk,
        source_lines(files),
        keeps_rows,
        heartbeat,
    )


def _without_functions(plan: Plan) -> tuple[Plan, dict[int, bytes], set[str]]:
    """Return the plan without functions, the pickled functions, and the files they come from."""
    functions = {}
    operators = {}
    files: set[str] = set()
    for op in plan.operators.values():
        operation = op.node.operation
        if isinstance(operation, FunctionOperation):
            functions[op.id] = _pickle("the function", operation.function, op, files)
            bare = replace(op.node, operation=replace(operation, function=None))
            op = replace(op, node=bare)
        operators[op.id] = op
        for what, part in _other_parts(op):
            _pickle(what, part, op, files)
    return replace(plan, operators=operators), functions, files


def pack(job: JobCode, paths: Iterable[str] = ()) -> bytes:
    """Return the job as bytes; the workers import from these paths too."""
    return dumps(_Parcel((*paths, *sys.path), tuple(sys.argv), dumps(job)))


def unpack(data: bytes) -> JobCode:
    """Return the job, in a worker; modules that the program could import can be imported here."""
    parcel: _Parcel = cloudpickle.loads(data)
    sys.path.extend(path for path in parcel.path if path not in sys.path)
    sys.argv[:] = parcel.arguments
    job: JobCode = cloudpickle.loads(parcel.job)
    configure(job.file_systems)
    know_sources(job.sources)
    if job.desk is not None:
        mount(driver_root(job.desk), DriverFileSystem(job.desk, job.certificate))
    _adopt_main_classes(job)
    return job


def main_classes() -> dict[str, type]:
    """Return the classes that the program's own script defines."""
    return {
        name: value
        for name, value in vars(sys.modules["__main__"]).items()
        if isinstance(value, type) and value.__module__ == "__main__" and _can_pickle(value)
    }


def _adopt_main_classes(job: JobCode) -> None:
    """Put the script's classes where pickle finds them, so that records need no class by value."""
    module = sys.modules.setdefault("__main__", ModuleType("__main__"))
    for name, cls in job.main_classes.items():
        setattr(module, name, cls)


def _other_parts(op: PlannedOperator) -> Iterator[tuple[str, Any]]:
    """Yield the other objects of the user that an operator has besides its function."""
    operation = op.node.operation
    if isinstance(operation, SourceOperation):
        yield "the source", operation.source
    for edge in op.node.inputs:
        yield "the key selector", getattr(edge.partitioning, "selector", None)
        yield "the partitioner", getattr(edge.partitioning, "partitioner", None)
    yield "the settings", op


def _pickle(what: str, value: Any, op: PlannedOperator, files: set[str]) -> bytes:
    try:
        return dumps(value, files)
    except Exception as error:
        at_fault, culprit = _member_at_fault(value) or (repr(value), value)
        raise PickleError(
            f"{what} of operator '{op.name}' cannot be sent to the workers: "
            f"{at_fault} cannot be pickled{_reason(error, culprit)}"
        ) from error


def _reason(error: Exception, culprit: Any) -> str:
    """Return why something cannot be pickled, and the remedy."""
    if isinstance(error, HoldfastError):
        return f": {error}"
    if _is_sparks(culprit):
        return (
            ": objects of Spark work in the driver only; collect what the function needs into a "
            "variable before, or read a DataFrame as a stream with env.from_dataframe(...)"
        )
    return (
        f" ({type(error).__name__}: {error}); create it in open() instead, or leave it out with "
        "__getstate__"
    )


def _is_sparks(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("pyspark", "py4j")


def _can_pickle(value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True


def _member_at_fault(value: Any, depth: int = 3) -> tuple[str, Any] | None:
    """Return the innermost member that cannot be pickled, after its description."""
    if _is_sparks(value):
        return None
    for owner, name, member in _members(value) if depth else ():
        if not _can_pickle(member):
            inner = _member_at_fault(member, depth - 1)
            if inner is None:
                return f"{owner} '{name}' ({_type_name(member)})", member
            return f"{inner[0]} of {owner} '{name}'", inner[1]
    return None


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
        yield from _defaults(value)


def _defaults(function: Any) -> Iterator[tuple[str, str, Any]]:
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is not parameter.empty:
            yield "the default of its parameter", name, parameter.default
