"""Finds the expression that a small function returns, so that it need not be called.

Key selectors such as ``lambda record: record[0]`` run twice for every record, and calling one takes
longer than what it does. A function is recognised by its instructions: they must be those of an
expression that reads one item with a constant, or one attribute, or is the argument itself.
"""

from __future__ import annotations

from dis import get_instructions
from types import CodeType, FunctionType
from typing import Any, Final

#: the types of constants that are written into the expression
_LITERALS: Final = (int, str)


def expression_of(function: Any, argument: str) -> str | None:
    """Return what a function computes from a variable; None if the function must be called."""
    if type(function) is not FunctionType or not _takes_one(function.__code__):
        return None
    code = function.__code__
    name, wanted = code.co_varnames[0], _instructions(code)
    for part in _parts(code):
        if _instructions(eval(f"lambda {name}: {name}{part}").__code__) == wanted:
            return f"{argument}{part}"
    return None


def _takes_one(code: CodeType) -> bool:
    """Return whether one argument is all that a function refers to."""
    return code.co_argcount == len(code.co_varnames) == 1 and not (
        code.co_freevars or code.co_cellvars or code.co_kwonlyargcount
    )


def _parts(code: CodeType) -> list[str]:
    """Return what the function may add to its argument: nothing, an item, or an attribute."""
    items = [f"[{value!r}]" for value in code.co_consts if type(value) in _LITERALS]
    return ["", *items, *(f".{name}" for name in code.co_names)]


def _instructions(code: CodeType) -> list[tuple[str, Any, type]]:
    return [(each.opname, each.argval, type(each.argval)) for each in get_instructions(code)]
