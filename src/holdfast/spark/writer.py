"""Spark writers as sinks."""

from __future__ import annotations

from pyspark.sql import SparkSession

from holdfast.plan.model import Plan
from holdfast.runtime.blocks import Block


def write_results(session: SparkSession, plan: Plan, blocks: list[Block]) -> None:
    """Write what the subtasks staged in an accepted epoch."""
