"""Plans as pictures: all that is in a plan is drawn, and nothing is on top of anything else."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.plan.svg import to_svg
from tests.plan.test_golden import PROGRAMS, Program, numbers

SVG = "{http://www.w3.org/2000/svg}"
Rectangle = tuple[float, float, float, float]


def parts(picture: str, tag: str, *classes: str) -> list[ElementTree.Element]:
    found = ElementTree.fromstring(picture).iter(f"{SVG}{tag}")
    return [part for part in found if part.get("class") in classes]


def rectangle(part: ElementTree.Element) -> Rectangle:
    x, y, width, height = (float(part.get(name, "")) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def apart(one: Rectangle, other: Rectangle) -> bool:
    return one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def within(inner: Rectangle, outer: Rectangle) -> bool:
    return all(i >= o for i, o in zip(inner[:2], outer[:2], strict=True)) and all(
        i <= o for i, o in zip(inner[2:], outer[2:], strict=True)
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_all_of_a_plan_is_drawn(env: StreamExecutionEnvironment, program: Program) -> None:
    program(env)
    plan = env._plan(program.__name__)
    picture = to_svg(plan)
    assert ElementTree.fromstring(picture).findtext(f"{SVG}title") == program.__name__
    names = [box.findtext(f"{SVG}title") for box in parts(picture, "rect", "operator", "source")]
    assert sorted(map(str, names)) == sorted(op.name for op in plan.operators.values())
    assert len(parts(picture, "path", "exchange")) == len(plan.exchanges)
    calls = sum(len(op.calls) for op in plan.operators.values())
    assert len(parts(picture, "path", "call")) == calls
    levels = len(plan.levels) + bool(plan.rows_sources)
    assert len(parts(picture, "rect", "level")) == levels


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_boxes_are_apart_and_in_their_levels(
    env: StreamExecutionEnvironment, program: Program
) -> None:
    program(env)
    picture = to_svg(env._plan(None))
    boxes = [rectangle(part) for part in parts(picture, "rect", "operator", "source")]
    levels = [rectangle(part) for part in parts(picture, "rect", "level")]
    assert all(apart(*pair) for pair in combinations(boxes, 2))
    assert all(apart(*pair) for pair in combinations(levels, 2))
    assert all(sum(within(box, level) for level in levels) == 1 for box in boxes)
    _, _, width, height = ElementTree.fromstring(picture).get("viewBox", "").split()
    assert all(within(level, (0, 0, float(width), float(height))) for level in levels)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_no_two_exchanges_share_a_lane(env: StreamExecutionEnvironment, program: Program) -> None:
    """Where they are side by side, their vertical lines are at different places."""
    program(env)
    routes = parts(to_svg(env._plan(None)), "path", "exchange")
    lanes = []
    for route in routes:
        turn, lane, end = (part[1:] for part in route.get("d", "").split()[2:5])
        lanes.append((int(lane), int(turn), int(end)))
    for (lane, turn, end), (other, from_, to) in combinations(lanes, 2):
        assert lane != other or end < from_ or to < turn


def test_names_are_escaped_and_cut(env: StreamExecutionEnvironment) -> None:
    name = '<b> & "c" ' + "long " * 20
    numbers(env).name(name).print()
    (box, *_) = parts(to_svg(env._plan("a < b")), "rect", "source")
    assert box.findtext(f"{SVG}title") == name
    assert float(box.get("width", "")) < 400
