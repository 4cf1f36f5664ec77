"""Word count over a source that never ends, cancelled from the program.

The source draws a random line five times a second. The job runs in the background; after
``--seconds`` the program cancels it, which calls the source's ``cancel`` and ends its loop. Every
word is printed with its running count as soon as its epoch is accepted, and at the end:

    cancelled after 5 s: JobStatus.CANCELED
"""

import argparse
import random
import time

from holdfast.datastream import SourceFunction, StreamExecutionEnvironment
from holdfast.datastream.functions import SourceContext

LINES = [
    "to be or not to be that is the question",
    "the better part of valour is discretion",
    "all that glisters is not gold",
]


class RandomLines(SourceFunction):
    """Emits random lines until it is cancelled."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._running = True

    def run(self, ctx: SourceContext) -> None:
        while self._running:
            ctx.collect(random.choice(LINES))
            time.sleep(self._pause)

    def cancel(self) -> None:
        self._running = False


def main(seconds: float) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    (
        env.add_source(RandomLines(pause=0.2), "random lines")
        .flat_map(str.split)
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .sum(1)
        .print()
    )
    client = env.execute_async("streaming word count")
    time.sleep(seconds)
    client.cancel().result()
    print(f"cancelled after {seconds:g} s: {client.get_job_status().result()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count the words of an endless stream.")
    parser.add_argument("--seconds", type=float, default=5.0, help="when to cancel the job")
    main(parser.parse_args().seconds)
