"""Compiles the operators of a chain into one Python function.

With ``a -> b -> c`` as nested calls, each operator would cost a Python call per record in addition
to the user's own function, which is a tenth of the total time. So source code is generated for the
chain, in which the code of each operator stands in place of its call. It is compiled once per
process:

    def run(records):
        try:
            for r0 in records:
                r1 = map_1(r0)
                if filter_2(r1):
                    ...
        except (Exception, SystemExit) as error: fail(locals(), error)

A record passes through all operators before the next one is read, as with nested calls. When an
exception is raised or something is logged, the line of the generated code tells which function was
called, and the local variables contain its arguments. So nothing is noted while all goes well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, NoReturn

from holdfast.common.watermark_strategy import NO_TIMESTAMP
from holdfast.datastream.formats.columns import RowError
from holdfast.datastream.output_tag import TAGS_EXIST, OutputTag
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.graph.nodes import Hash
from holdfast.plan.model import Call
from holdfast.runtime.event_time import StampingTime
from holdfast.runtime.failures import FailureReporter, is_iterable, not_iterable
from holdfast.runtime.inlining import expression_of
from holdfast.runtime.routing import TOGETHER, Emit, Router
from holdfast.runtime.worker.logs import WHOSE
from holdfast.state.errors import StateTypeError

Run = Callable[[Iterable[Any]], None]

#: Tracebacks start after the frames of files in this folder.
_FILE = str(Path(__file__).with_name("<chain>"))
#: Python allows at most twenty nested loops; operators below this depth are called instead.
_DEEPEST = 12
#: Holdfast's own errors that are about what a function or a record is
_OF_FUNCTIONS = (JobDefinitionError, RowError, StateTypeError)


class Calling(Enum):
    """How the generated code calls a function with a record, and what the function returns."""

    ONE = "one"
    #: a result, or None for no result
    MAYBE = "maybe"
    FILTER = "filter"
    MANY = "many"
    #: as MANY, with a context
    PROCESS = "process"
    #: as MANY, with the timestamp; each result has a timestamp too
    STAMPED = "stamped"
    #: nothing, with a context
    SINK = "sink"
    #: nothing yet, with the timestamp
    ASYNC = "async"

    @property
    def has_context(self) -> bool:
        """Return whether the function can read the timestamp from a context."""
        return self in (Calling.PROCESS, Calling.SINK)


@dataclass
class Port:
    """One input of an operator, for code generation.

    Attributes:
        calling: how ``call`` is called; None for an operator that only forwards records.
        context: the second argument, if there is one.
        selector: returns the key, on a keyed stream.
        timestamped: whether the timestamp of each record is set in the context.
    """

    calling: Calling | None = None
    call: Callable[..., Any] | None = None
    context: Any = None
    selector: Callable[[Any], Any] | None = None
    timestamped: bool = False


@dataclass(slots=True)
class SinkCount:
    """How many records a sink has accepted since its last report."""

    records: int = 0

    def drain(self) -> int:
        """Return the number, and start again at zero."""
        records, self.records = self.records, 0
        return records


@dataclass
class FusedStep:
    """One operator, for code generation.

    Attributes:
        report: describes its failures.
        ports: its inputs.
        key_context: where the key is set, on a keyed stream.
        stamping: assigns a new timestamp to records, and generates watermarks.
        coerce: converts results to their declared type.
        take: takes the records of an operator without downstream operators.
        sink: counts the records that a sink has accepted, if the operator is one.
        calls: the downstream operators in the chain.
        routers: the downstream exchanges.
        has_sides: whether a result may be a pair of an ``OutputTag`` and a record.
        side_coerce: converts records of side outputs to their declared type, by tag.
        check: called when the operator has processed a record.
    """

    report: FailureReporter
    ports: tuple[Port, ...] = (Port(),)
    key_context: Any = None
    stamping: StampingTime | None = None
    coerce: Callable[[Any], Any] | None = None
    take: Emit | None = None
    sink: SinkCount | None = None
    calls: tuple[Call, ...] = ()
    routers: tuple[Router, ...] = ()
    has_sides: bool = False
    side_coerce: Mapping[str, Callable[[Any], Any] | None] = field(default_factory=dict)
    check: Callable[[], None] | None = None


class Fused(NamedTuple):
    """The compiled functions of a chain.

    Attributes:
        inputs: process records, by operator and input; pairs with timestamps if the input has them.
        outputs: forward results that an operator produces outside of a call, with timestamps.
    """

    inputs: dict[tuple[int, int], Run]
    outputs: dict[int, Run]


def fuse(
    steps: Mapping[int, FusedStep],
    entries: Mapping[tuple[int, int], bool],
    outputs: Iterable[int] = (),
) -> Fused:
    """Compile the operators of a chain.

    ``entries``: the operators and inputs that receive records, each with whether the records have
    timestamps. ``outputs``: the operators that produce results outside of a call.
    """
    writer = _Writer(steps)
    for (number, port), paired in entries.items():
        writer.write_run(number, port, paired)
    for number in outputs:
        writer.write_output(number)
    return writer.compile()


#: The expression for the timestamp of records that have none.
_NO_STAMP = "None"


class _CallSite(NamedTuple):
    """A place in the generated code where a function is called.

    Attributes:
        var: the variable with the record.
        call: the function that gives any number of results, if it is one.
        inlined: the functions whose expressions stand in place of a call.
        is_result: the record is a result, which is converted to its declared type.
    """

    report: FailureReporter
    var: str
    call: Callable[..., Any] | None = None
    inlined: tuple[Callable[[Any], Any], ...] = ()
    is_result: bool = False

    def inlined_error(self, record: Any) -> Exception | None:
        """Return the error of an inlined function, with the line of the user's program."""
        try:
            for function in self.inlined:
                function(record)
        except Exception as error:
            error.__context__ = None  # NB: that is the same error, of the expression
            return error
        return None


def _misfit(error: Exception) -> Exception:
    """Return the error for a result that does not fit its declared type."""
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(
        f"a result does not fit its declared type: {error}; emit values of this type, or declare "
        "another output type"
    )


class _Writer:
    """Generates the functions of a chain, and collects the objects that they refer to."""

    def __init__(self, steps: Mapping[int, FusedStep]) -> None:
        self._steps = steps
        self._callers = Counter(
            (call.target, call.input) for step in steps.values() for call in step.calls
        )
        self._lines: list[str] = []
        self._names: dict[str, Any] = {
            "OutputTag": OutputTag,
            "tags_exist": TAGS_EXIST,
            "fail": self._fail,
            WHOSE: lambda line: self._places[line - 1].report,
        }
        #: where each line of the code calls a function
        self._places: list[_CallSite] = []
        self._place: _CallSite
        self._runs: list[tuple[int, int]] = []
        self._outs: list[int] = []
        self._apart: list[tuple[int, int]] = []
        #: operators with side outputs, and the tags that are read
        self._sides: dict[int, list[str]] = {}
        self._depth = 0
        self._stamps = 0
        #: the line of the current function's first statement, and the sinks that it counts for
        self._first = 0
        self._counted: list[str] = []

    def write_run(self, number: int, port: int, paired: bool) -> None:
        self._runs.append((number, port))
        self._begin(f"run_{number}_{port}(records)", number)
        self._line(2, "for r0, t0 in records:" if paired else "for r0 in records:")
        self._operator(number, port, 0, "t0" if paired else _NO_STAMP, 3)
        self._end()

    def write_output(self, number: int) -> None:
        self._outs.append(number)
        self._begin(f"out_{number}(records)", number)
        self._depth = _DEEPEST  # the code of downstream operators exists already
        self._line(2, "for r0, t0 in records:")
        step = self._steps[number]
        self._main_or_side(step, number, 0, "t0", 3)
        self._end()

    def compile(self) -> Fused:
        written = sides = 0
        while written < len(self._apart) or sides < len(self._sides):
            if written < len(self._apart):  # operators that are called may call others
                self._write_apart(*self._apart[written])
                written += 1
            else:
                self._write_sides(list(self._sides)[sides])
                sides += 1
        exec(_compiled("\n".join(self._lines)), self._names)
        for number, tags in self._sides.items():
            self._names[f"sides_{number}"].update(
                (tag, self._names[f"side_{number}_{i}"]) for i, tag in enumerate(tags)
            )
        return Fused(
            {(number, port): self._names[f"run_{number}_{port}"] for number, port in self._runs},
            {number: self._names[f"out_{number}"] for number in self._outs},
        )

    def _write_apart(self, number: int, port: int) -> None:
        self._begin(f"apart_{number}_{port}(r0, t0)", number)
        self._operator(number, port, 0, "t0", 2)
        self._end()

    def _write_sides(self, number: int) -> None:
        """Write a function for each side output of an operator that is read."""
        step = self._steps[number]
        for index, tag in enumerate(self._sides[number]):
            self._begin(f"side_{number}_{index}(r0, t0)", number)
            var, coerce = 0, step.side_coerce.get(tag)
            if coerce is not None:
                self._at(step.report, "r0", is_result=True)
                self._line(2, f"r1 = {self._name('coerce', coerce)}(r0)")
                var = 1
            self._outputs(step, var, "t0", 2, tag)
            self._end()

    def _begin(self, head: str, number: int) -> None:
        self._depth = self._stamps = 0
        self._at(self._steps[number].report, "r0")
        self._line(0, f"def {head}:")
        self._first = len(self._lines)
        self._counted = []
        self._line(1, "pass")
        self._line(1, "try:")

    def _end(self) -> None:
        # NB: a function that calls sys.exit() ends the job, not the process of the worker
        self._line(1, "except (Exception, SystemExit) as error: fail(locals(), error)")
        if self._counted:
            counts = "; ".join(f"n_{sink} = 0" for sink in self._counted)
            self._lines[self._first] = f"    {counts}"
            self._line(1, "finally:")
            for sink in self._counted:
                self._line(2, f"{sink}.records += n_{sink}")

    def _count(self, sink: SinkCount, indent: int) -> None:
        """Write the code that counts a record of a sink: in a local variable, which is cheap."""
        name = self._name("sink", sink)
        if name not in self._counted:
            self._counted.append(name)
        self._line(indent, f"n_{name} += 1")

    def _operator(self, number: int, port: int, var: int, stamp: str, indent: int) -> None:
        """Write the code that passes the variable ``r<var>`` to an operator."""
        step = self._steps[number]
        entry = step.ports[port]
        record = f"r{var}"
        if step.take is not None:
            self._line(indent, f"{self._name('take', step.take)}({record})")
        elif step.stamping is not None:
            self._at(step.report, record)
            self._coerced(step, var, self._stamp(step.stamping, record, stamp, indent), indent)
        elif entry.calling is None:
            self._coerced(step, var, stamp, indent)
        else:
            place = self._at(step.report, record, entry.call, *_inlined(entry))
            if entry.selector is not None:
                context = self._name("context", step.key_context)
                self._line(indent, f"{context}.key = {self._value(entry.selector, record)}")
            if entry.timestamped:
                self._line(indent, f"{self._name('context', entry.context)}.stamp = {stamp}")
            self._call(number, entry, var, stamp, indent)
            self._place = place
            if step.sink is not None:
                self._count(step.sink, indent)
            if step.check is not None:
                self._line(indent, f"{self._name('check', step.check)}()")

    def _stamp(self, time: StampingTime, record: str, stamp: str, indent: int) -> str:
        """Write the code that assigns a timestamp and updates the generator; return its name."""
        stamping = self._name("stamping", time)
        if time.extract is None:
            self._line(indent, f"if {stamp} is None or {stamp} > {stamping}.largest:")
            self._line(indent + 1, f"{stamping}.saw({record}, {stamp})")
            return stamp
        self._stamps += 1
        new = f"t{self._stamps}"
        before = str(NO_TIMESTAMP)
        if stamp != _NO_STAMP:
            before = f"{NO_TIMESTAMP} if {stamp} is None else {stamp}"
        self._line(indent, f"{new} = {self._name('extract', time.extract)}({record}, {before})")
        self._line(indent, f"if {new}.__class__ is not int: {stamping}.refuse({new})")
        self._line(indent, f"if {new} > {stamping}.largest: {stamping}.saw({record}, {new})")
        return new

    def _call(self, number: int, entry: Port, var: int, stamp: str, indent: int) -> None:
        step = self._steps[number]
        call, record, result = self._name("call", entry.call), f"r{var}", f"r{var + 1}"
        if entry.calling is Calling.ONE:
            self._line(indent, f"{result} = {self._value(entry.call, record)}")
            self._coerced(step, var + 1, stamp, indent)
        elif entry.calling is Calling.MAYBE:
            self._line(indent, f"{result} = {call}({record})")
            self._line(indent, f"if {result} is not None:")
            self._coerced(step, var + 1, stamp, indent + 1)
        elif entry.calling is Calling.FILTER:
            self._line(indent, f"if {self._value(entry.call, record)}:")
            self._coerced(step, var, stamp, indent + 1)
        elif entry.calling is Calling.SINK:
            self._line(indent, f"{call}({record}, {self._name('context', entry.context)})")
        elif entry.calling is Calling.ASYNC:
            self._line(indent, f"{call}({record}, {stamp})")
        else:
            self._many(number, entry, var, stamp, indent)

    def _many(self, number: int, entry: Port, var: int, stamp: str, indent: int) -> None:
        """Write the call of a function with any number of results, which may be a generator."""
        step = self._steps[number]
        record, results, result = f"r{var}", f"many{var}", f"r{var + 1}"
        second = ""
        if entry.calling is Calling.PROCESS:
            second = f", {self._name('context', entry.context)}"
        elif entry.calling is Calling.STAMPED:
            second = f", {stamp}"
            self._stamps += 1
            stamp = f"t{self._stamps}"
            result = f"{result}, {stamp}"
        call = self._name("call", entry.call)
        self._line(indent, f"{results} = {call}({record}{second})")
        self._line(indent, f"if {results} is not None:")
        self._line(indent + 1, f"for {result} in {results}:")
        self._depth += 1
        self._main_or_side(step, number, var + 1, stamp, indent + 2)
        self._depth -= 1

    def _main_or_side(
        self, step: FusedStep, number: int, var: int, stamp: str, indent: int
    ) -> None:
        """Write the code for a result: a record, or a pair of an ``OutputTag`` and a record."""
        if step.has_sides:
            result = f"r{var}"
            sides = self._side_functions(step, number)
            self._line(
                indent,
                f"if tags_exist and {result}.__class__ is tuple and len({result}) == 2 "
                f"and {result}[0].__class__ is OutputTag:",
            )
            self._line(indent + 1, f"side = {sides}.get({result}[0].tag_id)")
            self._line(indent + 1, f"if side is not None: side({result}[1], {stamp})")
            self._line(indent + 1, "continue")
        self._coerced(step, var, stamp, indent)

    def _side_functions(self, step: FusedStep, number: int) -> str:
        name = f"sides_{number}"
        if number not in self._sides:
            tags = [call.tag for call in step.calls] + [r.exchange.tag for r in step.routers]
            self._sides[number] = [tag for tag in dict.fromkeys(tags) if tag is not None]
            self._names[name] = {}
        return name

    def _coerced(self, step: FusedStep, var: int, stamp: str, indent: int) -> None:
        if step.coerce is not None:
            self._at(step.report, f"r{var}", is_result=True)
            self._line(indent, f"r{var + 1} = {self._name('coerce', step.coerce)}(r{var})")
            var += 1
        self._outputs(step, var, stamp, indent)

    def _outputs(
        self, step: FusedStep, var: int, stamp: str, indent: int, tag: str | None = None
    ) -> None:
        calls = [call for call in step.calls if call.tag == tag]
        routers = [router for router in step.routers if router.exchange.tag == tag]
        place = self._place
        for call in calls:
            self._place = place
            target = (call.target, call.input)
            if self._callers[target] == 1 and self._depth < _DEEPEST:
                self._operator(*target, var, stamp, indent)
            else:
                self._call_apart(target, var, stamp, indent)
        for router in routers:
            self._place = place
            self._route(router, var, stamp, indent)
        if not calls and not routers:
            self._line(indent, "pass")

    def _call_apart(self, place: tuple[int, int], var: int, stamp: str, indent: int) -> None:
        if place not in self._apart:
            self._apart.append(place)
        self._line(indent, f"apart_{place[0]}_{place[1]}(r{var}, {stamp})")

    def _route(self, router: Router, var: int, stamp: str, indent: int) -> None:
        """Write the code for an exchange: inline for a hash partitioning, else a call."""
        record, partitioning = f"r{var}", router.exchange.partitioning
        item = f"({record}, {stamp})" if router.exchange.timestamped else record
        if not isinstance(partitioning, Hash) or router.exchange.columnar:
            self._line(indent, f"{self._name('emit', router.emit)}({record}, {item})")
            return
        self._at(router.report, record, None, router.selector)
        key = self._value(router.selector, record)
        waiting = self._name("waiting", router.waiting)
        self._line(indent, f"{self._name('keys', router.keys)}.append({key})")
        self._line(indent, f"{waiting}.append({item})")
        self._line(indent, f"if len({waiting}) >= {TOGETHER}:")
        self._line(indent + 1, f"{self._name('distribute', router.distribute)}()")

    def _value(self, function: Any, record: str) -> str:
        """Return the expression for what a function of one record returns."""
        return expression_of(function, record) or f"{self._name('call', function)}({record})"

    def _at(
        self,
        report: FailureReporter,
        var: str,
        call: Callable[..., Any] | None = None,
        *inlined: Callable[[Any], Any],
        is_result: bool = False,
    ) -> _CallSite:
        """Say where the lines that follow call a function; return that."""
        self._place = _CallSite(report, var, call, inlined, is_result)
        return self._place

    def _fail(self, variables: Mapping[str, Any], error: Exception | SystemExit) -> NoReturn:
        if isinstance(error, HoldfastError) and not isinstance(error, _OF_FUNCTIONS):
            raise error  # it is complete, or describes a failure already
        traceback = error.__traceback__
        assert traceback is not None
        place = self._places[traceback.tb_lineno - 1]
        record, results = variables.get(place.var), variables.get(f"many{place.var[1:]}")
        if place.is_result and isinstance(error, TypeError | ValueError):
            error = _misfit(error)
        elif isinstance(error, TypeError) and results is not None and not is_iterable(results):
            error = not_iterable(place.call, results)
        elif traceback.tb_next is None:
            error = place.inlined_error(record) or error
        place.report.at(record, error)

    def _name(self, prefix: str, value: Any) -> str:
        for name, known in self._names.items():
            if known is value and name.startswith(prefix):
                return name
        name = f"{prefix}_{len(self._names)}"
        self._names[name] = value
        return name

    def _line(self, indent: int, text: str) -> None:
        self._lines.append("    " * indent + text)
        self._places.append(self._place)


def _inlined(entry: Port) -> Iterator[Callable[[Any], Any]]:
    """Yield the functions of an input whose expressions stand in place of a call."""
    if entry.selector is not None:
        yield entry.selector
    if entry.calling in (Calling.ONE, Calling.FILTER) and expression_of(entry.call, "r"):
        assert entry.call is not None
        yield entry.call


@lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    """Compile code once per process: subtasks of the same level have the same code."""
    return compile(text, _FILE, "exec")
