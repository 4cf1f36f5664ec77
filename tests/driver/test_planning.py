"""Planners of sources, as the driver makes them for each attempt."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from holdfast.common import WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.base import EpochPlanner
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.driver.epochs.planning import Planners
from holdfast.testing import LocalExecutor


class Planned(NumberSequenceSource):
    def create_planner(self, restored: bool) -> EpochPlanner:
        return Planner()


class Planner(EpochPlanner):
    free = False

    def run_free(self) -> None:
        self.free = True

    def plan(self) -> Any:
        return self.free


@pytest.mark.parametrize("free", [True, False])
def test_planners_hear_whether_readers_run_free(free: bool) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_source(Planned(1, 2), WatermarkStrategy.no_watermarks(), "numbers")
    with LocalExecutor(stream) as planned:
        planners = Planners(planned.plan, free)
    planners.begin_attempt(None)
    assert [pickle.loads(plan) for plan in planners.plans().values()] == [free]
