"""Keyed state in a ``KeyedProcessFunction``: a running sum per key.

The function asks for its state in ``open``. Before each record the runtime sets the key, so
``value()`` and ``update()`` speak of the state of that record's key alone. Prints:

    ('hi', 1)
    ('hi', 3)
    ('hello', 3)
    ('hi', 7)
    ('hello', 8)
"""

from collections.abc import Iterator

from holdfast.common import Types
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.state import ValueState, ValueStateDescriptor


class RunningSum(KeyedProcessFunction):
    """Adds up the second field of the records of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("sum", Types.LONG(), default_value=0)
        self._sum: ValueState[int] = runtime_context.get_state(descriptor)

    def process_element(
        self, value: tuple[str, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, int]]:
        total = (self._sum.value() or 0) + value[1]
        self._sum.update(total)
        yield ctx.get_current_key(), total


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    (
        env.from_collection([("hi", 1), ("hi", 2), ("hello", 3), ("hi", 4), ("hello", 5)])
        .key_by(lambda record: record[0])
        .process(RunningSum(), Types.TUPLE([Types.STRING(), Types.LONG()]))
        .print()
    )
    env.execute("state access")


if __name__ == "__main__":
    main()
