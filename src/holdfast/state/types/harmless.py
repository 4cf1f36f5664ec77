"""Reading pickled values without running any of their code.

Unpickling calls any function that the bytes name. Here the bytes are read as data
(`holdfast.state.types.pickled_data`), and plain values are created from the data: dates, decimals,
sets, rows and the like, each from checked arguments. An object of any other class or function
becomes an `Unknown`, which records how it was created. Nothing is imported, and no class or shared
object is ever changed.

The result is a tree of bounded size. A value is rejected if it refers to itself, is nested too
deep, or would become far larger than its pickle when it is displayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from holdfast.state.errors import PickledStateError
from holdfast.state.types.pickled_data import Made, Members, Name, Pairs, read_pickle
from holdfast.state.types.plain_classes import MAKERS

#: cloudpickle's functions that create classes of the main program; the second argument is the name
_CLASS_MAKERS: Final = {"_make_skeleton_class", "_make_skeleton_enum"}
#: the deepest nesting of values
_DEEPEST: Final = 100
#: values and characters that the result may have in addition, because shared ones are repeated
_SHARED: Final = 1 << 26
#: the most values and characters for each byte of a pickle
_PER_BYTE: Final = 4
#: in bits; Python does not convert integers with more digits to text
_LARGEST_INTEGER: Final = 14_000
_ATOMS: Final = (bool, type(None), float)


class Unknown:
    """An object of a class that is not supported here, or the class or function itself.

    Two are equal if they were pickled in the same way. It has no key group, since only its class
    determines that.

    Attributes:
        class_name: the name of its class, with the module.
    """

    __slots__ = ("_parts", "class_name")

    def __init__(self, class_name: str, parts: list[Any] | None = None) -> None:
        """Record its parts: arguments, keyword arguments, state, items; None for a class."""
        self.class_name = class_name
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _unknown, (self.class_name, self._parts)

    def __getstate__(self) -> NoReturn:
        message = (
            f"the key group of the pickled key {self!r} cannot be determined without its class; "
            "read it with trusted=True, where the class can be imported"
        )
        raise PickledStateError(message)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Unknown):
            return NotImplemented
        return (self.class_name, self._parts) == (other.class_name, other._parts)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        name = self.class_name.rpartition(".")[2]
        if self._parts is None:
            return name
        args, kwargs, state, items = self._parts
        match state:
            case (None | dict(), dict()):
                fields = {**(state[0] or {}), **state[1]}
            case _:
                fields = state
        if isinstance(fields, dict):
            kwargs = {**kwargs, **fields}
        elif fields is not None:
            args = (*args, fields)
        told = [*map(repr, (*args, *items)), *(f"{field}={v!r}" for field, v in kwargs.items())]
        return f"{name}({', '.join(told)})"


def harmless_loads(data: bytes | memoryview) -> Any:
    """Return the pickled value, with an `Unknown` for every object that is not plain.

    Raises:
        PickledStateError: if it is not a pickle, or not a tree of bounded size.
    """
    try:
        return _Builder(_PER_BYTE * len(data) + _SHARED).value(read_pickle(bytes(data)))
    except Exception as error:
        message = (
            f"pickled values cannot be read without their classes: {type(error).__name__}: "
            f"{error}; read them with trusted=True, where the classes can be imported"
        )
        raise PickledStateError(message) from error


def holds_unknown(data: bytes | memoryview) -> bool:
    """Return whether a pickle contains an `Unknown`."""
    return __name__.encode() in bytes(data)


class _Builder:
    """Converts nodes to values, each once."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: by the `id` of a node: the value, and its count towards the limit
        self._made: dict[int, tuple[Any, int]] = {}
        self._open: set[int] = set()
        self._count = 0

    def value(self, node: Any) -> Any:
        """Return the value of a node."""
        kind = type(node)
        if kind in _ATOMS:
            self._add(1)
            return node
        if kind in (str, bytes, bytearray):
            self._add(1 + len(node))
            return node
        if kind is int:
            return self._integer(node)
        if id(node) in self._made:
            value, count = self._made[id(node)]
            self._add(count)
            return value
        return self._compound(node)

    def _compound(self, node: Any) -> Any:
        if id(node) in self._open:
            message = "a value refers to itself"
            raise ValueError(message)
        if len(self._open) >= _DEEPEST:
            message = f"values are nested deeper than {_DEEPEST}"
            raise ValueError(message)
        self._open.add(id(node))
        before = self._count
        self._add(1)
        value = self._make(node)
        self._made[id(node)] = value, self._count - before
        self._open.discard(id(node))
        return value

    def _make(self, node: Any) -> Any:
        match node:
            case list():
                return list(map(self.value, node))
            case tuple():
                return tuple(map(self.value, node))
            case Pairs(items=items):
                return {self.value(key): self.value(value) for key, value in items}
            case Members(items=items, frozen=frozen):
                return (frozenset if frozen else set)(map(self.value, items))
            case Name(module=module, name=name):
                return Unknown(f"{module}.{name}")
            case Made():
                return self._result(node)
        message = f"it holds a {type(node).__name__}"
        raise TypeError(message)

    def _result(self, call: Made) -> Any:
        args, kwargs = self.value(call.args), self.value(call.kwargs)
        state, items = self.value(call.state), self.value(call.items)
        named = _name_of(call.callee)
        make = _MAKERS.get((named.module, named.name)) if named else None
        if make is not None and not any(isinstance(part, Unknown) for part in args):
            return make(args, kwargs, state, items)
        if named and named.name in _CLASS_MAKERS:
            return Unknown(str(args[1]))
        made = self.value(call.callee)
        is_class = isinstance(made, Unknown) and made._parts is None
        name = made.class_name if is_class else repr(made)
        return Unknown(name, [args, kwargs, state, items])

    def _integer(self, node: int) -> int:
        if node.bit_length() > _LARGEST_INTEGER:
            message = f"an integer has {node.bit_length()} bits"
            raise ValueError(message)
        self._add(1)
        return node

    def _add(self, count: int) -> None:
        self._count += count
        if self._count > self._most:
            message = f"it has more than {self._most} values and characters, with shared repeated"
            raise ValueError(message)


def _name_of(callee: Name | Made) -> Name | None:
    """Return the name of a called function; a method is called by way of ``getattr``."""
    match callee:
        case Name():
            return callee
        case Made(callee=Name(module="builtins", name="getattr"), args=(Name() as cls, str(name))):
            return Name(cls.module, f"{cls.name}.{name}")
    return None


def _unknown(name: str, parts: list[Any] | None) -> Unknown:
    """Recreate an `Unknown` that was pickled itself."""
    args, kwargs, _, items = ((), {}, None, []) if parts is None else parts
    kinds = [type(part) for part in (name, args, kwargs, items)]
    if kinds != [str, tuple, dict, list]:
        message = "the parts of an unknown object have the wrong types"
        raise TypeError(message)
    return Unknown(name, parts)


def _remade(args: tuple[Any, ...], kwargs: Any, state: Any, items: list[Any]) -> Unknown:
    return _unknown(*args)


_MAKERS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    **MAKERS,
    (__name__, "_unknown"): _remade,
}
