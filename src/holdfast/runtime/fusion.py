"""Composes the operators of a chain into one function: nested calls, written out.

``a -> b -> c`` as nested calls costs a Python call per operator and record on top of the user's own
functions, a tenth of all the time there is. So the chain is written as a piece of source code
in which each operator stands where its call would be, and compiled once per process:

    def run(records):
        at = 0
        try:
            for r0 in records:
                at = 1
                r1 = map_1(r0)
                at = 2
                if filter_2(r1):
                    ...
        except HoldfastError: raise
        except Exception as error: fail(at, locals(), error)

A record goes all the way before the next one begins, as with nested calls. ``at`` says whose
function was called when an exception comes, and the local variables what it was called with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

from holdfast.datastream.two_phase_commit import TwoPhaseCommitSinkFunction
from holdfast.errors import HoldfastError
from holdfast.graph.nodes import Hash, Style
from holdfast.runtime.failures import FailureReporter
from holdfast.runtime.routing import Emit, Router, explain_key

Run = Callable[[Iterable[Any]], None]

#: Tracebacks begin after the frames of files in this folder.
_FILE = str(Path(__file__).with_name("<chain>"))
#: Python nests no more than twenty loops; an operator further down is called.
_DEEPEST = 12

_METHODS = {
    Style.MAP: "map",
    Style.FLAT_MAP: "flat_map",
    Style.FILTER: "filter",
    Style.PROCESS: "process_element",
    Style.SINK: "invoke",
}


def method_of(function: Any, style: Style) -> Callable[..., Any]:
    """The method that a style calls on a function object; a plain callable is itself."""
    if isinstance(function, TwoPhaseCommitSinkFunction):
        return function.accept
    return getattr(function, _METHODS[style], function)  # type: ignore[no-any-return]


@dataclass
class Step:
    """One operator, as the code needs it.

    Attributes:
        report: describes its failures.
        style: how ``call`` is called; None for an operator whose records just pass on.
        context: the second argument of the styles that have one.
        selector, key_context: where to find and put the key, on a keyed stream.
        coerce: gives results their declared shape.
        take: takes the records of an operator that has no others after it.
        calls: the operators after it, by their number.
        routers: the exchanges after it.
    """

    report: FailureReporter
    style: Style | None = None
    call: Callable[..., Any] | None = None
    context: Any = None
    selector: Callable[[Any], Any] | None = None
    key_context: Any = None
    coerce: Callable[[Any], Any] | None = None
    take: Emit | None = None
    calls: tuple[int, ...] = ()
    routers: tuple[Router, ...] = ()


def fuse(steps: Mapping[int, Step], entries: Iterable[int]) -> dict[int, Run]:
    """For each entry, the function that takes records of its input."""
    writer = _Writer(steps)
    for entry in entries:
        writer.write_run(entry)
    return writer.compile()


class _Writer:
    """Writes the functions of a chain, and collects what they refer to."""

    def __init__(self, steps: Mapping[int, Step]) -> None:
        self._steps = steps
        self._callers = Counter(target for step in steps.values() for target in step.calls)
        self._lines: list[str] = []
        self._names: dict[str, Any] = {"HoldfastError": HoldfastError, "fail": self._fail}
        #: by the value of ``at``: who is at work, on which variable, and with which key selector
        self._places: list[tuple[FailureReporter, str, Any]] = []
        self._runs: list[int] = []
        self._apart: list[int] = []
        self._depth = 0

    def write_run(self, entry: int) -> None:
        self._runs.append(entry)
        self._function(f"run_{entry}", "records", entry, loop=True)

    def compile(self) -> dict[int, Run]:
        written = 0
        while written < len(self._apart):  # operators that are called may call others
            number = self._apart[written]
            self._function(f"apart_{number}", "r0", number, loop=False)
            written += 1
        exec(_compiled("\n".join(self._lines)), self._names)
        return {entry: self._names[f"run_{entry}"] for entry in self._runs}

    def _function(self, name: str, argument: str, number: int, loop: bool) -> None:
        self._depth = 0
        self._line(0, f"def {name}({argument}):")
        self._line(1, "at = 0")
        self._line(1, "try:")
        if loop:
            self._line(2, "for r0 in records:")
        self._operator(number, 0, 3 if loop else 2)
        self._line(1, "except HoldfastError: raise")
        self._line(1, "except Exception as error: fail(at, locals(), error)")

    def _operator(self, number: int, var: int, indent: int) -> None:
        """The code that gives the variable ``r<var>`` to an operator."""
        step = self._steps[number]
        record = f"r{var}"
        if step.take is not None:
            self._line(indent, f"{self._name('take', step.take)}({record})")
        elif step.style is None:
            self._coerced(step, var, indent)
        else:
            self._at(indent, step.report, record)
            if step.selector is not None:
                context = self._name("context", step.key_context)
                key = f"{self._name('selector', step.selector)}({record})"
                self._line(indent, f"{context}.key = {key}")
            self._styled(step, var, indent)

    def _styled(self, step: Step, var: int, indent: int) -> None:
        call, record, result = self._name("call", step.call), f"r{var}", f"r{var + 1}"
        if step.style is Style.MAP:
            self._line(indent, f"{result} = {call}({record})")
            self._coerced(step, var + 1, indent)
        elif step.style is Style.FILTER:
            self._line(indent, f"if {call}({record}):")
            self._coerced(step, var, indent + 1)
        elif step.style is Style.SINK:
            self._line(indent, f"{call}({record}, {self._name('context', step.context)})")
        else:
            self._many(step, call, var, indent)

    def _many(self, step: Step, call: str, var: int, indent: int) -> None:
        """A function with any number of results, which may run on between them."""
        record, results, result = f"r{var}", f"many{var}", f"r{var + 1}"
        takes = step.style is Style.PROCESS
        context = f", {self._name('context', step.context)}" if takes else ""
        self._line(indent, f"{results} = {call}({record}{context})")
        self._line(indent, f"if {results} is not None:")
        self._line(indent + 1, f"for {result} in {results}:")
        self._depth += 1
        self._coerced(step, var + 1, indent + 2)
        self._depth -= 1
        self._at(indent + 2, step.report, record)

    def _coerced(self, step: Step, var: int, indent: int) -> None:
        if step.coerce is not None:
            self._at(indent, step.report, f"r{var}")
            self._line(indent, f"r{var + 1} = {self._name('coerce', step.coerce)}(r{var})")
            var += 1
        self._outputs(step, var, indent)

    def _outputs(self, step: Step, var: int, indent: int) -> None:
        for target in step.calls:
            if self._callers[target] == 1 and self._depth < _DEEPEST:
                self._operator(target, var, indent)
            else:
                self._call_apart(target, var, indent)
        for router in step.routers:
            self._route(router, var, indent)
        if not step.calls and not step.routers:
            self._line(indent, "pass")

    def _call_apart(self, target: int, var: int, indent: int) -> None:
        if target not in self._apart:
            self._apart.append(target)
        self._line(indent, f"apart_{target}(r{var})")

    def _route(self, router: Router, var: int, indent: int) -> None:
        """By key it is written out; other partitionings are called."""
        record, partitioning = f"r{var}", router.exchange.partitioning
        if not isinstance(partitioning, Hash):
            self._line(indent, f"{self._name('emit', router.emit)}({record})")
            return
        self._at(indent, router.report, record, router.selector)
        selector, targets = self._name("selector", router.selector), router.targets
        self._line(indent, f"t = {self._name('targets', targets)}[{selector}({record})]")
        self._line(indent, f"buffer = {self._name('buffers', router.buffers)}[t]")
        self._line(indent, f"buffer.append({record})")
        self._line(indent, f"if len(buffer) >= {self._name('router', router)}.limit:")
        self._line(indent + 1, f"{self._name('flush', router.flush)}(t)")

    def _at(self, indent: int, report: FailureReporter, var: str, selector: Any = None) -> None:
        place = (report, var, selector)
        if place not in self._places:
            self._places.append(place)
        self._line(indent, f"at = {self._places.index(place)}")

    def _fail(self, at: int, variables: Mapping[str, Any], error: Exception) -> NoReturn:
        report, var, selector = self._places[at]
        record = variables.get(var)
        if selector is not None and isinstance(error, TypeError):
            error = explain_key(selector, record, error)
        report.at(record, error)

    def _name(self, prefix: str, value: Any) -> str:
        for name, known in self._names.items():
            if known is value and name.startswith(prefix):
                return name
        name = f"{prefix}_{len(self._names)}"
        self._names[name] = value
        return name

    def _line(self, indent: int, text: str) -> None:
        self._lines.append("    " * indent + text)


@lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    """Subtasks of one level have the same code; a process makes many of them."""
    return compile(text, _FILE, "exec")
