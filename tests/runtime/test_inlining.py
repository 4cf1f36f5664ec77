"""Key selectors that are written into the code of a chain."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import UserFunctionError
from holdfast.runtime.inlining import expression_of
from holdfast.testing import LocalExecutor


def documented(record: Any) -> Any:
    """Return the second field."""
    return record[1]


class Hidden:
    """Has an attribute whose name Python changes."""

    def __init__(self) -> None:
        self.__key = 9

    @staticmethod
    def key(record: Hidden) -> int:
        return record.__key


INLINED: list[tuple[Callable[[Any], Any], Any, str]] = [
    (lambda record: record, 7, "r"),
    (lambda record: record[0], ("a", "b"), "r[0]"),
    (lambda record: record[-1], ("a", "b"), "r[-1]"),
    (lambda record: record["user's"], {"user's": 3}, """r["user's"]"""),
    (lambda record: record.user, SimpleNamespace(user=4), "r.user"),
    (documented, ("a", "b"), "r[1]"),
    (lambda record: record[0][1], (("a", "b"),), "r[0][1]"),
    (lambda record: record.a.b, SimpleNamespace(a=SimpleNamespace(b=4)), "r.a.b"),
    (lambda record: record[True], ("a", "b"), "r[True]"),
    (lambda record: record[1.0], {1: "a"}, "r[1.0]"),
    (lambda record: 0, 7, "0"),
    (lambda record: record[0] + 1, (1,), "(r[0] + 1)"),
    (lambda record: record - 1 - 2, 9, "((r - 1) - 2)"),
    (lambda record: record - (1 - record), 9, "(r - (1 - r))"),
    (lambda record: record[1] % 2 == 0, (1, 2), "((r[1] % 2) == 0)"),
    (lambda record: record > 1.5, 2, "(r > 1.5)"),
    (lambda record: (record[0],), ("a", "b"), "(r[0],)"),
    (lambda record: (record[0], (record[1], "x")), ("a", "b"), "(r[0], (r[1], 'x',),)"),
    (lambda record: record[(record[0], None)], {0: 1, (1, None): 2}, "r[(r[0], None,)]"),
    (Hidden.key, Hidden(), "r._Hidden__key"),
]


@pytest.mark.parametrize(("function", "record", "expression"), INLINED)
def test_what_a_function_reads_is_found(
    function: Callable[[Any], Any], record: Any, expression: str
) -> None:
    found = expression_of(function, "r")
    assert found == expression
    assert eval(found, {"r": record}) == function(record)


elsewhere = 1


def generates(record: Any) -> Any:
    yield record[0]


CALLED: list[Any] = [
    lambda record: record if record else 0,
    lambda record: record and 1,
    lambda record: 1 < record < 3,
    lambda record: len(record),
    lambda record: record.strip(),
    lambda record: [record],
    lambda record: {record: 1},
    lambda record: f"{record}",
    lambda record: -record,
    lambda record: 1e999 + record,
    lambda record: (),
    lambda record: (record := record[0]),
    lambda record: record[:2],
    lambda record: record[elsewhere],
    lambda record, other=0: record[0],
    lambda *record: record,
    lambda *, record=(1,): record[0],
    (lambda place: lambda record: record[place])(0),
    generates,
    itemgetter(0),
    abs,
]


@pytest.mark.parametrize("function", CALLED)
def test_every_other_function_is_called(function: Any) -> None:
    assert expression_of(function, "r") is None


def test_a_selector_that_fails_is_shown_with_its_line(env: StreamExecutionEnvironment) -> None:
    env.from_collection([(7,)]).key_by(lambda record: record[5]).sum(0)
    with pytest.raises(UserFunctionError) as caught, LocalExecutor(env) as run:
        run.run_to_end()
    error = caught.value
    assert (error.operator, error.record) == ("Source: Collection", "(7,)")
    assert error.error == "IndexError: tuple index out of range"
    assert Path(__file__).name in error.user_traceback
    assert "record[5]" in error.user_traceback


@pytest.mark.parametrize("how", ["map", "filter"])
def test_a_function_that_fails_is_shown_with_its_line(
    env: StreamExecutionEnvironment, how: str
) -> None:
    records = env.from_collection([(7,), (0,)])
    getattr(records, how)(lambda record: 7 // record[0] > 0).name("divides").print()
    with pytest.raises(UserFunctionError) as caught, LocalExecutor(env) as run:
        run.run_to_end()
    error = caught.value
    assert (error.operator, error.record) == ("divides", "(0,)")
    assert error.error == "ZeroDivisionError: integer division or modulo by zero"
    assert Path(__file__).name in error.user_traceback
    assert "7 // record[0]" in error.user_traceback


def test_inlined_functions_give_what_they_return(env: StreamExecutionEnvironment) -> None:
    records = env.from_collection([(1, "a"), (2, "b"), (3, "c")]).set_parallelism(1)
    pairs = records.map(lambda r: (r[0] * 2, r[1])).set_parallelism(1)
    kept = pairs.filter(lambda r: r[0] != 4).set_parallelism(1)
    with LocalExecutor(kept.map(lambda r: r[1]).set_parallelism(1)) as run:
        run.run_to_end()
    assert run.records == ["a", "c"]
