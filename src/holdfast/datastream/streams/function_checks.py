"""Mistakes in the functions of a program that are found when it is built.

A function object is compared with the base class that it extends: each method takes the arguments
of the method that it overrides, and produces its results in the same way. That is found in the
return type of the base class: one value, any number of results (``Iterable``), or nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from holdfast.common.callables import (
    described,
    is_async,
    is_generator,
    refused_arguments,
    returns_nothing,
)
from holdfast.datastream.functions import (
    BatchFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBatchFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from holdfast.errors import JobTypeError

#: methods for whose result None makes no sense
_NEVER_NONE: Final = frozenset(
    ("add", "create_accumulator", "filter", "get_key", "merge", "partition", "reduce")
)
#: methods whose result may be one batch or an iterable of batches
_BATCHES: Final = frozenset(("map_batch", "on_timers", "process_batch"))

#: the calls that take function objects, for those that were given to another one
_CALLS: Final = {
    KeyedBatchFunction: "key_by(...).process_batches({}(...), schema)",
    BatchFunction: "map_batches({}(...), schema)",
    KeyedProcessFunction: "key_by(...).process({}(...))",
    ProcessFunction: "process({}(...))",
    MapFunction: "map({}(...))",
    FlatMapFunction: "flat_map({}(...))",
    FilterFunction: "filter({}(...))",
    ReduceFunction: "key_by(...).reduce({}(...))",
}


class FunctionMethod(NamedTuple):
    """A method that a function object has, or the one that a plain callable stands for.

    Attributes:
        arguments: the names of the arguments with which it is called.
        results: the return type in the base class.
    """

    name: str
    arguments: tuple[str, ...]
    results: str
    is_async: bool = False

    @property
    def gives_many(self) -> bool:
        """Return whether it may return an iterable of results."""
        return self.results.startswith("Iterable") or self.name in _BATCHES

    @property
    def gives_nothing(self) -> bool:
        """Return whether its result is ignored."""
        return self.results == "None"


def check_function(
    call: str, function: Any, kind: type[Function], arguments: Sequence[str] | None = None
) -> None:
    """Check a function that may be a function object or a plain callable.

    Args:
        call: the method of the stream, for messages.
        function: what the user gave.
        kind: the class of function objects; a plain callable stands for its abstract method.
        arguments: the arguments of a callable for which there is no such class.

    Raises:
        JobTypeError: if it is neither, or cannot be called as it will be.
    """
    _check_called(call, function)
    if isinstance(function, Function) and (isinstance(function, kind) or not callable(function)):
        check_object(call, function, kind, or_callable=True)
    elif not callable(function):
        got = f"got {kind_of(function)}{_remedy(function)}"
        message = f"{call}: expected a {kind.__name__} or a callable; {got}"
        raise JobTypeError(message)
    else:
        methods = (_method(kind, name) for name in getattr(kind, "__abstractmethods__", ()))
        assumed = FunctionMethod(call, tuple(arguments or ()), "Any")
        _check_method(call, function, next(methods, assumed))


def check_object(
    call: str,
    function: Any,
    *kinds: type[Any],
    expected: str = "",
    or_callable: bool = False,
    awaited: bool = False,
) -> None:
    """Check a function that must be an object of one of these classes, and all its methods.

    ``expected``: the beginning of the message if it is none. ``awaited``: its methods may be
    coroutine functions.

    Raises:
        JobTypeError: if it is none, or one of its methods cannot be called as it will be.
    """
    _check_called(call, function)
    if not isinstance(function, kinds):
        names = " or ".join(_with_article(kind.__name__) for kind in kinds)
        names += " or a callable" if or_callable else ""
        got = f"got {kind_of(function)}{_remedy(function)}"
        message = f"{call}: {expected or 'expected'} {names}; {got}"
        raise JobTypeError(message)
    for name, declared in _declared_methods(type(function)):
        given = getattr(function, name)
        if getattr(given, "__func__", None) is not declared:
            method = _method_of(name, declared)
            _check_method(call, given, method._replace(is_async=method.is_async or awaited))


def no_keys(function: Function) -> JobTypeError:
    """Return the error for a keyed process function on a stream without keys."""
    name = type(function).__name__
    return JobTypeError(
        f"process: {name} is a KeyedProcessFunction, and this stream has no keys; call key_by "
        f"before it: stream.key_by(...).process({name}(...))"
    )


def missing_method(stream: object, name: str, keyed: type, unkeyed: type) -> AttributeError:
    """Return the error for a method that this stream does not have, but another kind may have."""
    message = f"'{type(stream).__name__}' object has no attribute '{name}'"
    if not name.startswith("_"):
        if hasattr(keyed, name):
            message += f": the stream has no keys; call stream.key_by(...).{name}(...)"
        elif hasattr(unkeyed, name):
            message += f": call it before key_by: stream.{name}(...)"
        elif alike := get_close_matches(name, dir(type(stream)), 1):
            message += f"; did you mean '{alike[0]}'?"
    return AttributeError(message, name=name, obj=stream)


def kind_of(value: Any) -> str:
    """Return a value and its class, for a message."""
    return f"{value!r} ({type(value).__name__})"


def _remedy(function: Any) -> str:
    """Return the call that takes a function object which another call does not take."""
    for kind, call in _CALLS.items():
        if isinstance(function, kind):
            return f"; call {call.format(type(function).__name__)}"
    return ""


def _check_called(call: str, function: Any) -> None:
    if isinstance(function, type) and issubclass(function, Function):
        message = (
            f"{call}: got the class {function.__name__} instead of an object of it; "
            f"call it: {call}({function.__name__}(...))"
        )
        raise JobTypeError(message)


def _check_method(call: str, given: Callable[..., Any], method: FunctionMethod) -> None:
    problem = _problem(given, method)
    if problem is not None:
        message = f"{call}: {described(given)} {problem}"
        raise JobTypeError(message)


def _problem(given: Callable[..., Any], method: FunctionMethod) -> str | None:
    """Return what is wrong with a function, and the remedy."""
    if is_async(given) and not method.is_async:
        return (
            "is declared with 'async def', so a call returns a coroutine and runs nothing; use a "
            "plain function, or an AsyncFunction with AsyncDataStream"
        )
    if is_generator(given) and not method.gives_many:
        return _generator_problem(method)
    if method.name in _NEVER_NONE and returns_nothing(given):
        return "returns nothing; add a return statement"
    signature = refused_arguments(given, method.arguments)
    if signature is not None:
        return (
            f"has the parameters {signature}, but is called with {_counted(method.arguments)}; "
            "change its parameters"
        )
    return None


def _generator_problem(method: FunctionMethod) -> str:
    if method.gives_nothing:
        return (
            "is a generator function, because it contains yield, so a call runs nothing; remove "
            "the yield" + (", and call ctx.collect(record)" if method.name == "run" else "")
        )
    remedy = "return the result instead of yielding it"
    if method.name in ("map", "map1", "map2"):
        remedy = "use flat_map for any number of results, or " + remedy
    return (
        "is a generator function, because it contains yield, so each result would be a generator "
        f"object; {remedy}"
    )


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _counted(arguments: Sequence[str]) -> str:
    count = len(arguments)
    return f"{count} argument{'s' * (count != 1)}: {', '.join(arguments)}"


def _declared_methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods that Holdfast's base classes of a class declare."""
    seen = set()
    for base in cls.__mro__:
        if base.__module__.startswith("holdfast.datastream."):
            for name, declared in vars(base).items():
                if inspect.isfunction(declared) and name[0] != "_" and name not in seen:
                    seen.add(name)
                    yield name, declared


def _method(kind: type, name: str) -> FunctionMethod:
    return _method_of(name, getattr(kind, name))


def _method_of(name: str, declared: Any) -> FunctionMethod:
    signature = inspect.signature(declared)
    _, *parameters = signature.parameters.values()
    arguments = tuple(p.name for p in parameters if p.default is p.empty)
    return FunctionMethod(name, arguments, str(signature.return_annotation), is_async(declared))
