"""Small plans for the tests of a job's machine."""

from __future__ import annotations

from functools import cache

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.plan.model import Plan


@cache
def planned(width: int, source: int = 1) -> Plan:
    """A count that is so wide, after a source that is as wide as that, before a single printer."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(width)
    numbers = env.from_source(NumberSequenceSource(0, 9)).set_parallelism(source).uid("source")
    counts = numbers.key_by(lambda n: n % 3).sum().uid("count")
    counts.print().set_parallelism(1).uid("print")
    return env._take_plan(f"of {width}")


def widths(plan: Plan) -> dict[str, int]:
    """The parallelism of each operator."""
    return {op.uid: op.parallelism for op in plan.operators.values()}
