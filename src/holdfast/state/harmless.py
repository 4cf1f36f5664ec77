"""Pickled values looked at without running any code of theirs.

To unpickle is to call whatever the bytes name. Here the bytes are read as data
(`holdfast.state.pickled_data`), and plain values are made of that: dates, decimals, sets, rows and
the like, each from values that were checked. What any other class or function would make is an
`Unknown`, which remembers how it was made. Nothing is imported, and no class or shared object is
ever changed.

What comes out is a tree of bounded size: what refers to itself, is nested too deep, or would
become far larger than its pickle when it is shown, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

from holdfast.state.errors import PickledStateError
from holdfast.state.pickled_data import Call, Members, Name, Pairs, read_pickle
from holdfast.state.plain_classes import MAKERS

__all__ = ["Unknown", "harmless_loads", "holds_unknown"]

#: what cloudpickle makes classes with that live in the main program; the second argument is a name
_CLASS_MAKERS: Final = {"_make_skeleton_class", "_make_skeleton_enum"}
#: lists in lists
_DEEPEST: Final = 100
#: values and characters that may be shown beyond those in the pickle, since they are shared
_SHARED: Final = 1 << 26
#: how many values are counted for each byte of a pickle, at most
_PER_BYTE: Final = 4
#: Python writes no integer of more digits as a text
_LARGEST_INTEGER: Final = 14_000
_ATOMS: Final = (bool, type(None), float)


class Unknown:
    """An object of a class that was not looked for, or the class or function itself.

    Two are equal if they were pickled alike. It has no key group, since that is for its class to
    say.

    Attributes:
        class_name: that of its class, with the module.
    """

    __slots__ = ("_parts", "class_name")

    def __init__(self, class_name: str, parts: list[Any] | None = None) -> None:
        """Remember what it is made of: arguments, named ones, state, items; None for the class."""
        self.class_name = class_name
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _unknown, (self.class_name, self._parts)

    def __getstate__(self) -> NoReturn:
        message = (
            f"the key {self!r} is pickled, and which key group it belongs to is for its class to "
            "say; read it with trusted=True, where the class can be imported"
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
    """Return what is pickled, with an `Unknown` for all that is not plain.

    Raises:
        PickledStateError: when it is no pickle, or no tree of bounded size.
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
    """Return whether an `Unknown` is in what is pickled there."""
    return __name__.encode() in bytes(data)


class _Builder:
    """Makes values of nodes, each once."""

    def __init__(self, most: int) -> None:
        self._most = most
        #: by the `id` of a node: the value, and how many values it counts as
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
            case Call():
                return self._result(node)
        message = f"it holds a {type(node).__name__}"
        raise TypeError(message)

    def _result(self, call: Call) -> Any:
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
            message = f"more than {self._most} values and characters are in it, or shared in it"
            raise ValueError(message)


def _name_of(callee: Name | Call) -> Name | None:
    """Return what is called by its name; that of a method comes by way of ``getattr``."""
    match callee:
        case Name():
            return callee
        case Call(callee=Name(module="builtins", name="getattr"), args=(Name() as cls, str(name))):
            return Name(cls.module, f"{cls.name}.{name}")
    return None


def _unknown(name: str, parts: list[Any] | None) -> Unknown:
    """Return one that was pickled as what it is."""
    args, kwargs, _, items = ((), {}, None, []) if parts is None else parts
    kinds = [type(part) for part in (name, args, kwargs, items)]
    if kinds != [str, tuple, dict, list]:
        message = "what is not known is not remembered as it should be"
        raise TypeError(message)
    return Unknown(name, parts)


def _remade(args: tuple[Any, ...], kwargs: Any, state: Any, items: list[Any]) -> Unknown:
    return _unknown(*args)


_MAKERS: Final[dict[tuple[str, str], Callable[..., Any]]] = {
    **MAKERS,
    (__name__, "_unknown"): _remade,
}
