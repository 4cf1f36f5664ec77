"""Values of state that functions change in place and save, through any history of a job.

Here state is written at once. That it may be written later is tested by the simulation, whose
functions change values in place, too (`tests/simulation/job.py`), and by `holdfast torture` with
the same job on Spark (`scripts/torture.py`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from tests.lives import Life, live, lives
from tests.torture.changed_in_place import KEYS, NAMES, EveryKind, counted

RULES = 20


def lines(numbers: range) -> Counter[str]:
    """What the job must give."""
    by_key = [[n for n in numbers if n % KEYS == key] for key in range(KEYS)]
    by_rule = [range(rule or NAMES, RULES + 1, NAMES) for rule in range(NAMES)]
    every = [f"key {key}: {n + 1}" for key in range(KEYS) for n in range(len(by_key[key]))]
    every += [f"rule {rule}: {n + 1}" for rule in range(NAMES) for n in range(len(by_rule[rule]))]
    return Counter(every + 2 * [f"window: {numbers}" for numbers in by_key])


def builds(backend: str) -> Any:
    def build(env: StreamExecutionEnvironment) -> Any:
        env._configuration.set_string("state.backend.type", backend)
        numbers = env.from_source(NumberSequenceSource(1, 60))
        return counted(numbers, env.from_source(NumberSequenceSource(1, RULES)), EveryKind())

    return build


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_each_change_is_saved_once(backend: str) -> None:
    @settings(max_examples=15, deadline=None)
    @given(lives(st.integers(1, 15)))
    def survives(life: Life) -> None:
        assert Counter(live(builds(backend), life)) == lines(range(1, 61))

    survives()
