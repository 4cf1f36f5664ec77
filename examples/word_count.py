"""Word count: the first program of every stream processor.

Splits lines into words and keeps a running count per word, so every word gives a new line of
output. Without arguments it counts the lines below and prints:

    ('kelp', 1)
    ('holds', 1)
    ...
    ('kelp', 3)

``--input PATH`` counts a text file, or all files of a directory; ``--output DIRECTORY`` writes the
lines into part files there instead of printing them.
"""

import argparse
from collections.abc import Iterator

from holdfast.common import Encoder, Types, WatermarkStrategy
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import FileSink, FileSource, StreamFormat

LINES = [
    "kelp holds on to the rock",
    "the current pulls and the kelp holds",
    "the rock holds the kelp",
]


def split(line: str) -> Iterator[str]:
    yield from line.lower().split()


def main(input_path: str | None, output_path: str | None) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    if input_path:
        text = StreamFormat.text_line_format()
        source = FileSource.for_record_stream_format(text, input_path).build()
        lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "files")
    else:
        lines = env.from_collection(LINES, Types.STRING())

    counts = (
        lines.flat_map(split, Types.STRING())
        .map(lambda word: (word, 1), Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    if output_path:
        encoder = Encoder.simple_string_encoder()
        counts.sink_to(FileSink.for_row_format(output_path, encoder).build())
    else:
        counts.print()
    env.execute("word count")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count words.")
    parser.add_argument("--input", help="a text file or a directory; some lines of its own if not")
    parser.add_argument("--output", help="a directory for the counts; standard output if not")
    arguments = parser.parse_args()
    main(arguments.input, arguments.output)
