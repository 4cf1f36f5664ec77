"""State that expires: an alarm is told once, and again only after it was quiet for a second.

The state of a key that nobody asks for any more would otherwise stay for ever; with a
time-to-live it goes by itself. Prints:

    alarm> cellar: water
    alarm> attic: smoke
    alarm> cellar: water
"""

import time
from collections.abc import Iterator

from holdfast.common import Time, Types
from holdfast.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import StateTtlConfig, ValueStateDescriptor

Alarm = tuple[str, str]

#: stands for a while in which nothing happens
PAUSE: Alarm = ("nowhere", "pause")
ALARMS = [
    ("cellar", "water"),
    ("cellar", "water"),
    ("attic", "smoke"),
    ("cellar", "water"),
    PAUSE,
    ("cellar", "water"),
    ("cellar", "water"),
]


class TellOnce(KeyedProcessFunction):
    """Remembers for a second that an alarm was told."""

    def open(self, runtime_context: RuntimeContext) -> None:
        config = (
            StateTtlConfig.new_builder(Time.seconds(1))
            .update_ttl_on_read_and_write()  # each repetition begins the second anew
            .never_return_expired()
            .cleanup_full_snapshot()
            .build()
        )
        told = ValueStateDescriptor("told", Types.BOOLEAN())
        told.enable_time_to_live(config)
        self.told = runtime_context.get_state(told)

    def process_element(self, value: Alarm, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        if value == PAUSE:
            time.sleep(1.2)
        elif not self.told.value():
            self.told.update(True)
            yield f"{value[0]}: {value[1]}"


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    alarms = env.from_collection(ALARMS)
    alarms.key_by(lambda alarm: alarm).process(TellOnce(), Types.STRING()).print("alarm")
    env.execute("alarms")


if __name__ == "__main__":
    main()
