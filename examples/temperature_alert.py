"""An alert when two readings of one sensor in a row differ by more than a threshold.

The last reading of each sensor is state; the threshold is a job parameter, read in ``open`` from
the runtime context, where the function also learns which subtask it is: all readings of a sensor
go to one. Prints, for instance:

    freezer jumped from -18.0 to -4.0 (subtask 1 of 2)
    freezer jumped from -4.0 to -19.5 (subtask 1 of 2)
    boiler jumped from 61.0 to 74.5 (subtask 2 of 2)
"""

from collections.abc import Iterator

from holdfast.common import Types
from holdfast.datastream import FlatMapFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.state import ValueState, ValueStateDescriptor

READINGS = [
    ("boiler", 60.0),
    ("freezer", -18.5),
    ("boiler", 61.0),
    ("boiler", 74.5),
    ("freezer", -18.0),
    ("freezer", -4.0),
    ("boiler", 74.0),
    ("freezer", -19.5),
]


class TemperatureAlert(FlatMapFunction):
    """Compares each reading with the one before it, sensor by sensor."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._threshold = float(runtime_context.get_job_parameter("threshold", "5"))
        number = runtime_context.get_index_of_this_subtask() + 1
        count = runtime_context.get_number_of_parallel_subtasks()
        self._where = f"subtask {number} of {count}"
        descriptor = ValueStateDescriptor("last temperature", Types.DOUBLE())
        self._last: ValueState[float] = runtime_context.get_state(descriptor)

    def flat_map(self, value: tuple[str, float]) -> Iterator[str]:
        sensor, temperature = value
        last = self._last.value()
        if last is not None and abs(temperature - last) > self._threshold:
            yield f"{sensor} jumped from {last} to {temperature} ({self._where})"
        self._last.update(temperature)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_config().set_global_job_parameters({"threshold": 10})
    (
        env.from_collection(READINGS)
        .key_by(lambda reading: reading[0])
        .flat_map(TemperatureAlert())
        .set_parallelism(2)
        .map(str)
        .set_parallelism(1)
        .print()
        .set_parallelism(1)
    )
    env.execute("temperature alert")


if __name__ == "__main__":
    main()
