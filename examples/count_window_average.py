"""Averages of every two values of a key, with ``ValueState`` in a flat map.

The state holds the count and the sum so far. At the second value the average goes out and the
state is cleared, so that the next value starts a new pair. Of (1, 3) (1, 5) (1, 7) (1, 4) (1, 2)
the last one waits for a partner that never comes. Prints:

    (1, 4)
    (1, 5)
"""

from collections.abc import Iterator

from holdfast.common import Types
from holdfast.datastream import FlatMapFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.state import ValueState, ValueStateDescriptor


class CountWindowAverage(FlatMapFunction):
    """Gives the average of each two values."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor(
            "count and sum", Types.TUPLE([Types.LONG(), Types.LONG()]), default_value=(0, 0)
        )
        self._state: ValueState[tuple[int, int]] = runtime_context.get_state(descriptor)

    def flat_map(self, value: tuple[int, int]) -> Iterator[tuple[int, int]]:
        key, number = value
        count, total = self._state.value() or (0, 0)
        count, total = count + 1, total + number
        if count < 2:
            self._state.update((count, total))
        else:
            self._state.clear()
            yield key, total // count


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    (
        env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)])
        .key_by(lambda record: record[0])
        .flat_map(CountWindowAverage())
        .print()
    )
    env.execute("count window average")


if __name__ == "__main__":
    main()
