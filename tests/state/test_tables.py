"""Which values of state cannot be changed, so that a checkpoint need not copy them."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.state.live.tables import is_immutable, own_value


@dataclass(frozen=True)
class Frozen:
    held: Any


class Point(NamedTuple):
    held: Any


class Struct(msgspec.Struct, frozen=True):
    held: Any


class WithMore(Frozen):
    """No dataclass itself, so it may have other attributes than its base."""

    def __init__(self, held: Any) -> None:
        super().__init__(held)
        object.__setattr__(self, "more", [])


class Labelled(namedtuple("Labelled", ["held"])):
    more: list[int]


@pytest.mark.parametrize("kind", [Frozen, Point, Struct])
def test_what_holds_only_values_that_cannot_change_is_not_copied(kind: Any) -> None:
    for held in (1, "text", (1, Decimal(2)), frozenset({1})):
        value = kind(held)
        assert own_value(value) is value
    assert not is_immutable(kind([]))


def test_attributes_of_a_subclass_can_change() -> None:
    labelled = Labelled(1)
    assert is_immutable(labelled)
    labelled.more = []
    for value in (labelled, WithMore(1)):
        copied = own_value(value)
        copied.more.append(1)
        assert value.more == []
