"""Counts records per key over numbers that several source subtasks make.

The source divides two hundred thousand numbers over its subtasks; the last digit is the key. A
count per key is kept in ``ValueState`` and goes out at every five-thousandth record of its key. The
program iterates over what goes out, and prints the last count of each key:

    key 0: 20000
    ...
    key 9: 20000
"""

from collections.abc import Iterator

from holdfast.common import Types
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.connectors.number_seq import NumberSequenceSource
from holdfast.datastream.state import ValueState, ValueStateDescriptor


class CountPerKey(KeyedProcessFunction):
    """Counts, and says so now and then."""

    def __init__(self, every: int) -> None:
        self._every = every

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG(), default_value=0)
        self._count: ValueState[int] = runtime_context.get_state(descriptor)

    def process_element(
        self, value: int, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        if count % self._every == 0:
            yield ctx.get_current_key(), count


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    counts = (
        env.from_source(NumberSequenceSource(1, 200_000), source_name="numbers")
        .key_by(lambda number: number % 10)
        .process(CountPerKey(every=5_000))
    )
    totals: dict[int, int] = {}
    for key, count in counts.execute_and_collect("count per key"):
        totals[key] = count
    for key, count in sorted(totals.items()):
        print(f"key {key}: {count}")


if __name__ == "__main__":
    main()
