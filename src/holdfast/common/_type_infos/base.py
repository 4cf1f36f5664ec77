"""The base of all type information, and how a value that does not fit is reported.

A type has two ways to convert a value to its shape. `TypeInformation.coerce` checks field by field
and reports which part is wrong. `TypeInformation.coercer` returns a function that first evaluates a
generated test whether the value already has the shape, which is the usual case and takes a tenth of
a microsecond for a small tuple, and only then calls `coerce`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from typing import Any, Final

#: Python 3.11 specialises a function for its arguments after this many calls, or rounds of a loop;
#: but rounds of a comprehension that leaves a value out do not count
_WARM_UP: Final = 8


class Mismatch(Exception):
    """A value does not fit; `TypeInformation.coerce` catches this and reports it.

    Each container adds its step to the path of the value.
    """

    def __init__(self, error: type[TypeError] | type[ValueError], problem: str) -> None:
        super().__init__(problem)
        self.error = error
        self.problem = problem
        self.steps: list[str] = []

    def inside(self, step: str) -> Mismatch:
        """Prepend a step to the path of the value."""
        self.steps.append(step)
        return self

    def report(self) -> TypeError | ValueError:
        """Return the error for the user."""
        return self.error(f"value{''.join(reversed(self.steps))} {self.problem}")


def wrong_type(declared: TypeInformation, value: Any, hint: str = "") -> Mismatch:
    """Return the mismatch for a value of the wrong type."""
    got = f"got {type(value).__name__}: {reprlib.repr(value)}"
    return Mismatch(TypeError, f"is declared {declared!r}; {got}{hint and '; ' + hint}")


def wrong_range(declared: TypeInformation, value: Any, hint: str) -> Mismatch:
    """Return the mismatch for a value of the right type that is out of range."""
    return Mismatch(ValueError, f"is declared {declared!r}; got {reprlib.repr(value)}; {hint}")


def same(value: Any) -> Any:
    """Return the value."""
    return value


def optional(annotation: Any) -> Any:
    """Return the annotation with None allowed."""
    return annotation | None


class Scope:
    """The names that a generated test refers to."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._variables = 0

    def bind(self, value: Any) -> str:
        """Return a name that refers to the value."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def variable(self) -> str:
        """Return the name of a new loop variable."""
        self._variables += 1
        return f"x{self._variables}"

    def compile(self, arguments: str, body: str) -> Callable[..., Any]:
        """Return a function with that body."""
        function: Callable[..., Any] = eval(f"lambda {arguments}: {body}", self.names)
        return function


class TypeInformation:
    """The type of a stream's records or of a state's values.

    Type information is immutable, comparable, hashable and picklable. It is optional everywhere;
    where it is given, values are converted to it. None fits every type.

    Types that MessagePack can represent have three methods. `msgpack_type` is the type to decode.
    `to_msgpack` and `from_msgpack` convert between a value and its written form; they are None if
    both are the same.
    """

    def coerce(self, value: Any) -> Any:
        """Return the value converted to the type, as functions downstream see it.

        Raise a TypeError if it is of another type, a ValueError if it is out of range; both name
        the place inside the value, the declared type, and the actual value.
        """
        try:
            return self.shape(value)
        except Mismatch as mismatch:
            raise mismatch.report() from None

    def coercer(self) -> Callable[[Any], Any] | None:
        """Return a fast function that does what `coerce` does; None if there is nothing to do.

        A value that already has the shape is returned itself, not a copy.
        """
        scope = Scope()
        slow = scope.bind(self.coerce)
        return scope.compile("v", f"v if {self.test('v', scope)} else {slow}(v)")

    def doubtful(self) -> Callable[[Iterable[Any]], list[Any]]:
        """Return a fast function that returns the values that `coerce` may convert or reject.

        It tests many values in one call. For all others, `coerce` would return the value itself.
        """
        scope = Scope()
        find = scope.compile("vs", f"[v for v in vs if not {self.test('v', scope)}]")
        for _ in range(_WARM_UP):
            find(())
        return find

    def checker(self) -> Callable[[Iterable[Any]], None]:
        """Return a fast function that calls `coerce` with those values that may not fit."""
        doubtful = self.doubtful()

        def check(values: Iterable[Any]) -> None:
            for value in doubtful(values):
                self.coerce(value)

        return check

    def msgpack_type(self) -> Any | None:
        """Return the type that msgspec decodes for this one; None if values must be pickled.

        Inside tuples, rows, lists and maps it allows None, as `coerce` does.
        """
        return None

    def to_msgpack(self) -> Callable[[Any], Any] | None:
        """Return the function from a converted value to the object that msgspec encodes.

        None means that the value itself is encoded.
        """
        return None

    def from_msgpack(self) -> Callable[[Any], Any] | None:
        """Return the function from the object that msgspec decoded back to the value.

        None means that the decoded object is the value.
        """
        return None

    def need_conversion(self) -> bool:
        """Return whether `to_internal_type` changes values of this type."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """Return the value as numbers, texts and tuples, the form that PyFlink passes to the JVM.

        It exists for programs that call it; Holdfast itself does not use it.
        """
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Return the value from the result of `to_internal_type`."""
        return obj

    def test(self, value: str, scope: Scope) -> str:
        """Return the source of an expression that tests whether ``value`` has the shape or is None.

        ``value`` is itself an expression that is cheap to evaluate again.
        """
        return f"({self._test(value, scope)} or {value} is None)"

    def shape(self, value: Any) -> Any:
        """Return the value in the declared shape, or raise a `Mismatch`."""
        return value

    def _test(self, value: str, scope: Scope) -> str:
        return "True"
