"""The base of all type information, and how a value that does not fit is reported.

A type has two ways to bring a value into its shape. `TypeInformation.coerce` goes field by field
and says what is wrong where. `TypeInformation.coercer` returns a function that first asks one
generated expression whether the value already has the shape, which is the usual case and costs a
tenth of a microsecond for a small tuple, and only then calls `coerce`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

__all__ = [
    "Mismatch",
    "Scope",
    "TypeInformation",
    "optional",
    "same",
    "wrong_range",
    "wrong_type",
]


class Mismatch(Exception):
    """A value that does not fit, on its way up to `TypeInformation.coerce`, which reports it.

    Each container adds the step that leads to the value inside it.
    """

    def __init__(self, error: type[TypeError] | type[ValueError], problem: str) -> None:
        super().__init__(problem)
        self.error = error
        self.problem = problem
        self.steps: list[str] = []

    def inside(self, step: str) -> Mismatch:
        """Return this mismatch as seen from the container."""
        self.steps.append(step)
        return self

    def report(self) -> TypeError | ValueError:
        """Return the error for the user."""
        return self.error(f"value{''.join(reversed(self.steps))} {self.problem}")


def wrong_type(declared: TypeInformation, value: Any, hint: str = "") -> Mismatch:
    """Return the mismatch of a value of the wrong type."""
    got = f"got {type(value).__name__}: {reprlib.repr(value)}"
    return Mismatch(TypeError, f"is declared {declared!r}; {got}{hint and '; ' + hint}")


def wrong_range(declared: TypeInformation, value: Any, hint: str) -> Mismatch:
    """Return the mismatch of a value of the right type that the type cannot hold."""
    return Mismatch(ValueError, f"is declared {declared!r}; got {reprlib.repr(value)}; {hint}")


def same(value: Any) -> Any:
    """Return the value."""
    return value


def optional(annotation: Any) -> Any:
    """Return the annotation of something that may be None."""
    return annotation | None


class Scope:
    """The names that a generated test refers to."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._variables = 0

    def bind(self, value: Any) -> str:
        """Return a name that stands for the value."""
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
    """What is known of the type of a stream's records or of a state's values.

    Type information is immutable, comparable, hashable and picklable. It is optional everywhere;
    where it is given, values take the shape it declares. None fits every type.

    A type that MessagePack can hold says how: `msgpack_type` is what msgspec is to decode;
    `to_msgpack` and `from_msgpack` convert between a value and what is written, or are None if
    the value is written as it is.
    """

    def coerce(self, value: Any) -> Any:
        """Return the value in the declared shape, as functions downstream see it.

        Raise a TypeError if it is of another type, a ValueError if it is out of range; both name
        the place inside the value, the declared type, and what was there.
        """
        try:
            return self.shape(value)
        except Mismatch as mismatch:
            raise mismatch.report() from None

    def coercer(self) -> Callable[[Any], Any] | None:
        """Return a fast function that does what `coerce` does; None if there is nothing to do.

        A value that has the shape already is returned as it is, not copied.
        """
        scope = Scope()
        slow = scope.bind(self.coerce)
        return scope.compile("v", f"v if {self.test('v', scope)} else {slow}(v)")

    def msgpack_type(self) -> Any | None:
        """Return the type that msgspec decodes for this one; None if only pickle can hold it.

        Inside tuples, rows, lists and maps it allows None, as `coerce` does.
        """
        return None

    def to_msgpack(self) -> Callable[[Any], Any] | None:
        """Return the function from a value in the declared shape to what msgspec encodes.

        None means that the value itself is encoded.
        """
        return None

    def from_msgpack(self) -> Callable[[Any], Any] | None:
        """Return the function from what msgspec decoded back to the value.

        None means that what was decoded is the value.
        """
        return None

    def need_conversion(self) -> bool:
        """Return whether `to_internal_type` changes values of this type."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """Return the value as numbers, texts and tuples, the way PyFlink hands it to the JVM.

        Kept for programs that call it; Holdfast itself has no use for it.
        """
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Return the value that `to_internal_type` was given."""
        return obj

    def test(self, value: str, scope: Scope) -> str:
        """Return the text of an expression: does ``value`` have the shape, or is it None?

        ``value`` is itself an expression that is cheap to evaluate again.
        """
        return f"({self._test(value, scope)} or {value} is None)"

    def shape(self, value: Any) -> Any:
        """Return the value in the declared shape, or raise a `Mismatch`."""
        return value

    def _test(self, value: str, scope: Scope) -> str:
        return "True"
