"""A plan of faults: what is drawn depends on the seed and the kinds only."""

from __future__ import annotations

from itertools import islice

import pytest

from holdfast.torture.faults import KINDS, STEPS, PlannedFault, draw, kinds_named
from holdfast.torture.striking import _STRIKES


def drawn(seed: int, *names: str) -> list[PlannedFault]:
    return list(islice(draw(seed, kinds_named(names)), 200))


def test_the_same_seed_draws_the_same_faults() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_every_kind_is_drawn_at_times_and_at_steps() -> None:
    faults = drawn(1)
    assert {fault.kind for fault in faults} == {kind.name for kind in KINDS}
    kills = [fault for fault in faults if fault.kind == "kill-worker"]
    assert {fault.step for fault in kills} == {None, 4, 5, 6, 7}
    assert all(fault.step for fault in faults if fault.kind == "fail-task")
    assert all(fault.step is None for fault in faults if fault.kind == "cut")


def test_only_some_kinds_can_be_chosen() -> None:
    assert {fault.kind for fault in drawn(1, "cut", "rescale")} == {"cut", "rescale"}
    with pytest.raises(ValueError, match=r"there is no fault 'kil-worker'; there are: kill-worker"):
        kinds_named(["kil-worker"])


def test_a_list_of_kinds_draws_what_it_drew_before_there_were_more_kinds() -> None:
    first = drawn(1, "kill-worker", "fail-task")[:5]
    assert [(fault.kind, fault.step) for fault in first] == [
        ("kill-worker", 4),
        ("kill-worker", 7),
        ("kill-worker", None),
        ("kill-worker", None),
        ("fail-task", 5),
    ]
    assert [round(fault.delay, 3) for fault in first] == [0.228, 0.13, 0.27, 0.218, 0.066]


def test_whatever_is_stopped_is_woken() -> None:
    stops = [fault for fault in drawn(1) if fault.kind.startswith("stop-")]
    assert {fault.kind for fault in stops} == {
        "stop-worker",
        "stop-executor",
        "stop-source",
        "stop-driver",
    }
    assert all(0.2 <= fault.lasts <= 4.0 for fault in stops)
    # the job gives a process up after two seconds of silence
    assert {fault.lasts > 2 for fault in stops} == {True, False}


def test_a_moment_names_its_step() -> None:
    moments = {fault.moment for fault in drawn(1, "fail-task")}
    assert moments <= {f"at step {number} ({name})" for number, name in STEPS.items()}
    assert drawn(1, "cut")[0].moment.endswith("s after a checkpoint")


def test_every_kind_can_be_carried_out() -> None:
    assert _STRIKES.keys() == {kind.name for kind in KINDS}
