"""Word count: the first program of every stream processor.

Splits lines into words and keeps a running count per word, so every word gives a new line of
output. Without arguments it counts the lines below and prints:

    ('kelp', 1)
    ('holds', 1)
    ...
    ('kelp', 3)

``--input FILE`` counts a text file of yours; ``--output DIRECTORY`` writes the counts there as
CSV, with Spark, instead of printing them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from holdfast.common import Types
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink

LINES = [
    "kelp holds on to the rock",
    "the current pulls and the kelp holds",
    "the rock holds the kelp",
]


def split(line: str) -> Iterator[str]:
    yield from line.lower().split()


def main(input_path: str | None, output_path: str | None) -> None:
    lines = Path(input_path).read_text().splitlines() if input_path else LINES

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    counts = (
        env.from_collection(lines, Types.STRING())
        .flat_map(split, Types.STRING())
        .map(lambda word: (word, 1), Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    if output_path:
        counts.sink_to(DataFrameSink("csv", output_path, schema="word string, count int"))
    else:
        counts.print()
    env.execute("word count")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count words.")
    parser.add_argument("--input", help="a text file; a few lines of its own by default")
    parser.add_argument("--output", help="a directory for CSV files; standard output by default")
    arguments = parser.parse_args()
    main(arguments.input, arguments.output)
