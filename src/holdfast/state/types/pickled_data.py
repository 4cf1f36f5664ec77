"""Reading pickles as data, without calling, importing or changing anything.

A pickle is a program for a small machine with a stack. `pickle.Unpickler` runs it on live objects:
it calls the functions that the program names, and sets attributes of objects. This machine creates
lists, tuples and plain values; anything else becomes a node that records how it was created:

    Name     a class or a function, by module and name
    Made     a class or function and its arguments, the state and the items given to the result
    Pairs    a dict
    Members  a set or a frozenset

Nothing is hashed or compared, so a node may be a key or member whose value would not be hashable.
Memory and time are bounded by the length of the pickle.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, Final


class Name:
    """A class or a function."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


class Made:
    """The result of a call, with the state and the items that were then given to it."""

    __slots__ = ("args", "callee", "items", "kwargs", "state")

    def __init__(self, callee: Any, args: tuple[Any, ...], kwargs: Any = None) -> None:
        if not isinstance(callee, Name | Made) or not isinstance(args, tuple):
            message = "it calls something that is not a class or function"
            raise TypeError(message)
        self.callee = callee
        self.args = args
        self.kwargs: Pairs = Pairs([]) if kwargs is None else kwargs
        self.state: Any = None
        self.items: list[Any] = []


class Pairs:
    """The keys and values of a dict."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[Any, Any]]) -> None:
        self.items = items


class Members:
    """The elements of a set."""

    __slots__ = ("frozen", "items")

    def __init__(self, items: list[Any], frozen: bool) -> None:
        self.items = items
        self.frozen = frozen


def read_pickle(data: bytes) -> Any:
    """Return the pickled value as nodes.

    Raises:
        Exception: of any kind, if it is not a pickle, or refers to data outside of its bytes.
    """
    return _run(data).stack[0]


def names_in(data: bytes) -> set[tuple[str, str]]:
    """Return the classes and functions that a pickle names, by module and name.

    Raises:
        Exception: as with `read_pickle`.
    """
    return _run(data).names


def _run(data: bytes) -> _Machine:
    machine = _Machine(len(data))
    for opcode, argument, _ in pickletools.genops(data):
        operation = _OPERATIONS.get(opcode.name)
        if operation is not None:
            operation(machine, argument)
        elif opcode.name in _CONSTANTS:
            machine.stack.append(argument)
        elif opcode.name not in _IGNORED:
            message = f"it has the unsupported operation {opcode.name}"
            raise ValueError(message)
    if len(machine.stack) != 1:
        message = f"it has {len(machine.stack)} values, not one"
        raise ValueError(message)
    return machine


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self, size: int) -> None:
        self.stack: list[Any] = []
        self.names: set[tuple[str, str]] = set()
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._size = size

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def mark(self, _: Any) -> None:
        self._below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        """Remove and return the items that were pushed after the last mark."""
        found, self.stack = self.stack, self._below.pop()
        return found

    def pop(self, _: Any) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.since_mark()

    def duplicate(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def put(self, place: int | None) -> None:
        place = len(self._memo) if place is None else place
        # NB: `pickle` would allocate a table of that size for the same bytes
        if not 0 <= place <= self._size:
            message = f"it puts a value into place {place}"
            raise ValueError(message)
        self._memo[place] = self.stack[-1]

    def get(self, place: int) -> None:
        self.stack.append(self._memo[place])

    def pack(self, count: int) -> None:
        items = tuple(self.stack[len(self.stack) - count :])
        if len(items) < count:
            message = "a tuple has too few items"
            raise ValueError(message)
        del self.stack[len(self.stack) - count :]
        self.stack.append(items)

    def name(self, both: str) -> None:
        module, _, name = both.partition(" ")
        self._push_name(module, name)

    def stack_name(self, _: Any) -> None:
        module, name = self._two()
        if not isinstance(module, str) or not isinstance(name, str):
            message = "the name of a class is not a str"
            raise TypeError(message)
        self._push_name(module, name)

    def call(self, _: Any) -> None:
        self.stack.append(Made(*self._two()))

    def call_with_names(self, _: Any) -> None:
        kwargs = self.stack.pop()
        if not isinstance(kwargs, Pairs):
            message = "the keyword arguments of a call are not a dict"
            raise TypeError(message)
        callee, args = self._two()
        self.stack.append(Made(callee, args, kwargs))

    def call_named(self, both: str) -> None:
        args = tuple(self.since_mark())
        self.name(both)
        self.stack.append(Made(self.stack.pop(), args))

    def call_first(self, _: Any) -> None:
        callee, *args = self.since_mark()
        self.stack.append(Made(callee, tuple(args)))

    def build(self, _: Any) -> None:
        made, state = self._two()
        if not isinstance(made, Made):
            message = "it sets the state of something that is not the result of a call"
            raise TypeError(message)
        made.state = state
        self.stack.append(made)

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, Made):
            target.items += items
        elif type(target) is list:
            target += items
        else:
            message = "it appends to something that is not a list"
            raise TypeError(message)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, Pairs | Made):
            message = "it sets an item of something that is not a dict"
            raise TypeError(message)
        target.items += _paired(items)

    def add_members(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, Members) or target.frozen:
            message = "it adds to something that is not a set"
            raise TypeError(message)
        target.items += items

    def last(self, count: int) -> list[Any]:
        """Remove and return the last ``count`` items."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def _two(self) -> list[Any]:
        return self.last(2)

    def _push_name(self, module: str, name: str) -> None:
        self.names.add((module, name))
        self.stack.append(Name(module, name))


def _paired(items: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(items[::2], items[1::2], strict=True))


_Operation = Callable[[_Machine, Any], None]

_CONSTANTS: Final = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING"),
        *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)
_IGNORED: Final = frozenset({"FRAME", "PROTO", "STOP"})
#: NB: persistent ids, registered extensions and out-of-band buffers are not supported
_OPERATIONS: Final[dict[str, _Operation]] = {
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": lambda m, _: _drop(m.since_mark()),
    "DUP": _Machine.duplicate,
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.put,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "TUPLE1": lambda m, _: m.pack(1),
    "TUPLE2": lambda m, _: m.pack(2),
    "TUPLE3": lambda m, _: m.pack(3),
    "TUPLE": lambda m, _: m.push(tuple(m.since_mark())),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "LIST": lambda m, _: m.push(m.since_mark()),
    "APPEND": lambda m, _: m.extend(m.last(1)),
    "APPENDS": lambda m, _: m.extend(m.since_mark()),
    "EMPTY_DICT": lambda m, _: m.push(Pairs([])),
    "DICT": lambda m, _: m.push(Pairs(_paired(m.since_mark()))),
    "SETITEM": lambda m, _: m.set_items(m.last(2)),
    "SETITEMS": lambda m, _: m.set_items(m.since_mark()),
    "EMPTY_SET": lambda m, _: m.push(Members([], frozen=False)),
    "FROZENSET": lambda m, _: m.push(Members(m.since_mark(), frozen=True)),
    "ADDITEMS": lambda m, _: m.add_members(m.since_mark()),
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "NEWOBJ_EX": _Machine.call_with_names,
    "INST": _Machine.call_named,
    "OBJ": _Machine.call_first,
    "BUILD": _Machine.build,
}


def _drop(_: object) -> None:
    pass
