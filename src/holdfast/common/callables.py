"""What can be known about a function before it is called: its place, and mistakes in it."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from types import CodeType
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.tracebacks import short_name

__all__ = [
    "CodePlace",
    "described",
    "is_async",
    "is_generator",
    "place_of",
    "place_of_result",
    "refused_arguments",
    "returns_nothing",
    "with_place",
]

_E = TypeVar("_E", bound=BaseException)
#: the attribute of an exception with the place in the user's code that it is about
_PLACE: Final = "__place__"


class CodePlace(NamedTuple):
    """A line of code: the file, the line, and the name of the function."""

    file: str
    line: int
    function: str


def described(function: Any) -> str:
    """Return the name of a function and its place: ``'double' (job.py, line 7)``.

    >>> described(len)
    "'len'"
    """
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = _code(function)
    place = f" ({short_name(code.co_filename)}, line {code.co_firstlineno})" if code else ""
    return f"'{name.rpartition('<locals>.')[2]}'{place}"


def place_of_result(function: Any) -> CodePlace | None:
    """Return the line of a function that returns its result, or its first line if there are more.

    Returns None for a function that is not written in Python.
    """
    code = _code(_called(function))
    if code is None:
        return None
    lines = {
        step.positions.lineno
        for step, is_none in _returns(code)
        if not is_none and step.positions is not None
    }
    line = lines.pop() if len(lines) == 1 else None
    return CodePlace(code.co_filename, line or code.co_firstlineno, code.co_name)


def with_place(error: _E, function: Any) -> _E:
    """Attach to an exception the place of the function that it is about; see `place_of`."""
    place = place_of_result(function)
    if place is not None:
        setattr(error, _PLACE, tuple(place))
    return error


def place_of(error: BaseException) -> CodePlace | None:
    """Return the place that was attached to an exception, or None."""
    place = getattr(error, _PLACE, None)
    return None if place is None else CodePlace(*place)


def is_generator(function: Any) -> bool:
    """Return whether a call runs nothing yet and returns a generator."""
    called = _called(function)
    return inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)


def is_async(function: Any) -> bool:
    """Return whether a call runs nothing yet and returns something to await."""
    called = _called(function)
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def refused_arguments(function: Callable[..., Any], arguments: Sequence[str]) -> str | None:
    """Return the signature of a function that cannot be called with so many arguments, or None."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # many functions that are not written in Python have none
        return None
    try:
        signature.bind(*arguments)
    except TypeError:
        return str(signature.replace(return_annotation=inspect.Signature.empty))
    return None


def returns_nothing(function: Any) -> bool:
    """Return whether a function with statements returns None wherever it returns.

    A lambda that returns None does so on purpose, and a function that only raises never returns.
    """
    code = _code(_called(function))
    if code is None or code.co_name == "<lambda>" or is_generator(function) or is_async(function):
        return False
    returned = [is_none for _, is_none in _returns(code)]
    return bool(returned) and all(returned)


def _returns(code: CodeType) -> Iterator[tuple[dis.Instruction, bool]]:
    """Yield the instructions of a function that return, each with whether it returns None."""
    for before, step in pairwise(dis.get_instructions(code)):
        if step.opname == "RETURN_CONST":
            yield step, step.argval is None
        elif step.opname == "RETURN_VALUE":
            is_none = before.opname == "LOAD_CONST" and before.argval is None
            yield step, is_none and not step.is_jump_target


def _called(function: Any) -> Any:
    """Return the function itself, or the method ``__call__`` of an object that can be called."""
    while isinstance(function, partial):
        function = function.func
    is_object = not inspect.isroutine(function) and not isinstance(function, type)
    return type(function).__call__ if is_object and callable(function) else function


def _code(function: Any) -> CodeType | None:
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
