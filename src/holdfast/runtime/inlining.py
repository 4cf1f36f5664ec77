"""Finds the expression that a small function returns, so that it need not be called.

Functions such as ``lambda record: record[0]`` or ``lambda record: record[2] % 2 == 0`` run for each
record, key selectors even twice, and calling one takes longer than what it does. The expression is
read from the function's instructions: it may have items, attributes, operators, comparisons, tuples
and constants, but no calls, no conditions and no other names. Then it is compiled: if the result
does not have the same instructions, the function is called.
"""

from __future__ import annotations

from collections.abc import Iterable
from dis import Instruction, get_instructions
from types import CodeType, FunctionType
from typing import Any, Final

#: the types of constants that are written into the expression
_LITERALS: Final = (int, float, str, bytes, bool, type(None))
#: a function with more instructions than this is called: its call is a small part of its time
_MOST: Final = 64
#: instructions without an effect on the result
_SILENT: Final = frozenset({"RESUME", "CACHE", "NOP"})
_RETURNS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST"})


def expression_of(function: Any, argument: str) -> str | None:
    """Return what a function computes from a variable; None if the function must be called."""
    if type(function) is not FunctionType or not _takes_one(function.__code__):
        return None
    code = function.__code__
    name, wanted = code.co_varnames[0], list(get_instructions(code))
    if len(wanted) > _MOST:
        return None
    own = _expression(wanted, name)
    if own is None or _essence(get_instructions(eval(f"lambda {name}: {own}"))) != _essence(wanted):
        return None
    return _expression(wanted, argument)


def _takes_one(code: CodeType) -> bool:
    """Return whether one argument is all that a function refers to."""
    return code.co_argcount == len(code.co_varnames) == 1 and not (
        code.co_freevars or code.co_cellvars or code.co_kwonlyargcount
    )


def _expression(instructions: Iterable[Instruction], argument: str) -> str | None:
    """Return the expression that instructions compute; None if there is one that is not known."""
    stack: list[str] = []
    try:
        for each in instructions:
            if each.opname in _RETURNS:
                if each.opname == "RETURN_CONST":
                    stack.append(_literal(each.argval))
                return stack.pop() if len(stack) == 1 else None
            if each.opname not in _SILENT:
                _push(stack, each, argument)
    except (_UnknownInstruction, IndexError):
        return None
    return None


class _UnknownInstruction(Exception):
    """An instruction that is not that of a simple expression."""


def _push(stack: list[str], each: Instruction, argument: str) -> None:
    """Replace what an instruction takes from the stack by its result."""
    kind, value = each.opname, each.argval
    if kind == "LOAD_FAST":
        stack.append(argument)
    elif kind == "LOAD_FAST_LOAD_FAST":
        stack += [argument, argument]
    elif kind == "LOAD_CONST":
        stack.append(_literal(value))
    elif kind == "LOAD_ATTR":
        stack.append(f"{stack.pop()}.{value}")
    elif kind == "BINARY_SUBSCR":
        place = stack.pop()
        stack.append(f"{stack.pop()}[{place}]")
    elif kind in ("BINARY_OP", "COMPARE_OP"):
        second, operator = stack.pop(), each.argrepr if kind == "BINARY_OP" else value
        stack.append(f"({stack.pop()} {operator} {second})")
    elif kind == "BUILD_TUPLE" and value:
        parts = stack[-value:]
        del stack[-value:]
        stack.append(f"({', '.join(parts)},)" if len(parts) == value else "")
    else:
        raise _UnknownInstruction


def _literal(value: Any) -> str:
    if type(value) not in _LITERALS:
        raise _UnknownInstruction
    return repr(value)


def _essence(instructions: Iterable[Instruction]) -> list[tuple[str, Any, type]]:
    return [(each.opname, each.argval, type(each.argval)) for each in instructions]
