"""Counts how often the functions of a job are called, without a change to the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from holdfast.datastream.functions import Function
from holdfast.graph.operations import FunctionOperation
from holdfast.runtime.operators.choosing import methods_of
from holdfast.runtime.worker.job_code import JobCode


@dataclass(frozen=True)
class CountingJob(JobCode):
    """A job whose functions count their calls.

    Attributes:
        calls: the number of calls so far, by operator name.
    """

    calls: Counter[str] = field(default_factory=Counter)

    def new_function(self, operator: int) -> Any:
        """Return a function object of its own for one subtask, which counts."""
        function = super().new_function(operator)
        planned = self.plan.operators[operator]
        operation = planned.node.operation
        if not isinstance(operation, FunctionOperation):
            return function

        def count() -> None:
            self.calls[planned.name] += 1

        return _counting(function, methods_of(operation, function), count)


def counting_job(job: JobCode, calls: Counter[str]) -> CountingJob:
    """Return the same job, with functions that count."""
    return CountingJob(**vars(job), calls=calls)


def _counting(function: Any, calls: Sequence[Callable[..., Any]], count: Callable[[], None]) -> Any:
    if not isinstance(function, Function):
        return _CountingCallable(calls[0], count)
    cls = type(function)
    members = {call.__name__: _counted(getattr(cls, call.__name__), count) for call in calls}
    members |= {"__slots__": (), "__module__": cls.__module__}
    function.__class__ = type(cls)(cls.__name__, (cls,), members)  # type: ignore[misc]
    return function


def _counted(original: Callable[..., Any], count: Callable[[], None]) -> Any:
    @wraps(original)
    def counted(self: Any, *args: Any) -> Any:
        count()
        return original(self, *args)

    return counted


class _CountingCallable:
    def __init__(self, call: Callable[..., Any], count: Callable[[], None]) -> None:
        self._call = call
        self._count = count

    def __call__(self, *args: Any) -> Any:
        self._count()
        return self._call(*args)
