"""Rules that come while the job runs: the broadcast state pattern.

Every subtask hears every rule and keeps it in broadcast state; each reading goes to the one subtask
of its sensor. A reading meets the rules that are known already, and a new rule meets the readings
that all sensors of the subtask have in state: so each reading meets each rule once, whichever comes
first. A rule that is broadcast again replaces the one of its name. Prints

    hot: attic had 41.5
    hot: cellar had 30.2
    frost: attic had -3.0
    frost: garden had -7.5
    every reading met every rule, once
"""

from collections.abc import Iterator

from holdfast.common import Types
from holdfast.datastream import (
    KeyedBroadcastProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import ListState, ListStateDescriptor, MapStateDescriptor

Reading = tuple[str, float]
#: name, lowest and highest temperature without an alert
Rule = tuple[str, float, float]
Alert = tuple[str, str, float]

READINGS: list[Reading] = [
    ("attic", 41.5),
    ("cellar", 12.0),
    ("garden", -7.5),
    ("attic", -3.0),
    ("cellar", 30.2),
    ("garden", 18.0),
]
RULES: list[Rule] = [("hot", -273.15, 30.0), ("frost", 0.0, 1000.0)]

KNOWN = MapStateDescriptor("rules", Types.STRING(), Types.TUPLE([Types.DOUBLE(), Types.DOUBLE()]))
SEEN = ListStateDescriptor("readings", Types.DOUBLE())


class Watch(KeyedBroadcastProcessFunction[str, Reading, Rule, Alert]):
    """Holds each reading against each rule."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(SEEN)

    def process_element(
        self, value: Reading, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[Alert]:
        self.seen.add(value[1])
        for name, (lowest, highest) in ctx.get_broadcast_state(KNOWN).items():
            if not lowest <= value[1] <= highest:
                yield name, ctx.get_current_key(), value[1]

    def process_broadcast_element(
        self, value: Rule, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Iterator[Alert]:
        name, lowest, highest = value
        ctx.get_broadcast_state(KNOWN).put(name, (lowest, highest))
        alerts: list[Alert] = []

        def check(sensor: str, seen: ListState[float]) -> None:
            alerts.extend((name, sensor, t) for t in seen if not lowest <= t <= highest)

        ctx.apply_to_keyed_state(SEEN, check)
        yield from alerts


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    readings = env.from_collection(READINGS).key_by(lambda reading: reading[0])
    rules = env.from_collection(RULES).broadcast(KNOWN)
    alerts = readings.connect(rules).process(Watch()).set_parallelism(2)
    with alerts.execute_and_collect("broadcast rules") as results:
        found = sorted(results, key=lambda alert: (-ord(alert[0][0]), alert))
    for name, sensor, temperature in found:
        print(f"{name}: {sensor} had {temperature}")
    assert sorted(found) == sorted(
        (name, sensor, temperature)
        for sensor, temperature in READINGS
        for name, lowest, highest in RULES
        if not lowest <= temperature <= highest
    )
    print("every reading met every rule, once")


if __name__ == "__main__":
    main()
