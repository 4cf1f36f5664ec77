"""The operations of a stream, each as a branch of its own with a label in front of its output.

All branches hang on one source and run as one job. Among the lines that it prints:

    map> ('shanghai', 25.2)
    flat_map> shanghai
    filter> Reading(city='shanghai', degrees=25.2)
    project> ('berlin',)
    sum> ('berlin', 37.0)
    max_by> ('nairobi', 24.1)
    reduce> ('shanghai', '25.2 23.9')
    union> 18.5
"""

from typing import NamedTuple

from holdfast.common import Types
from holdfast.datastream import StreamExecutionEnvironment


class Reading(NamedTuple):
    """What a thermometer says."""

    city: str
    degrees: float


READINGS = [
    Reading("berlin", 18.5),
    Reading("shanghai", 25.2),
    Reading("nairobi", 24.1),
    Reading("shanghai", 23.9),
    Reading("berlin", 18.5),
    Reading("nairobi", 22.0),
]


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    readings = env.from_collection(READINGS)

    # One in, one out; any number out; all or nothing.
    readings.map(lambda r: (r.city, r.degrees)).print("map")
    readings.flat_map(lambda r: [r.city] if r.degrees > 24 else []).print("flat_map")
    readings.filter(lambda r: r.city == "shanghai").print("filter")
    readings.project(0).print("project")

    # By key: each city has a result of its own.
    by_city = readings.map(tuple).key_by(lambda r: r[0], key_type=Types.STRING())
    by_city.sum(1).print("sum")
    by_city.max_by(1).print("max_by")
    texts = readings.map(lambda r: (r.city, str(r.degrees))).key_by(lambda pair: pair[0])
    texts.reduce(lambda a, b: (a[0], f"{a[1]} {b[1]}")).print("reduce")

    # Two streams as one.
    cool = readings.filter(lambda r: r.degrees < 20)
    warm = readings.filter(lambda r: r.degrees >= 24)
    cool.union(warm).map(lambda r: r.degrees).print("union")

    env.execute("basic operations")


if __name__ == "__main__":
    main()
