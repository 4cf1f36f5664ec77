"""How long a user waits for the first result of ``examples/word_count.py``.

The task's number is that of the rounds. Each runs these commands once, one after the other, each in
a process of its own; every other round runs them the other way round:

    local       ``holdfast run --local``
    resident    ``holdfast run`` on the resident engine, as the default chooses it
    epochs      ``holdfast run`` on the epochs engine
    bare        the same word count in bare PySpark (`first_result_spark`)

The time is that from the start of the process to its first line on standard output; for
``starting_spark`` to the line ``starting Spark ...`` on standard error. Figures are medians, with
the lowest and the highest. A ratio to bare PySpark is one of two runs of the same round.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import IO, NamedTuple

from benchmarks.engines.percentiles import check
from benchmarks.measure import Measurement, emit
from benchmarks.program import parse_task
from benchmarks.ratios import ratio
from examples.word_count import LINES, split

ROOT = Path(__file__).parents[2]
_RUN = (sys.executable, "-m", "holdfast", "run")
_PROGRAM = "examples/word_count.py"
COMMANDS: Mapping[str, Sequence[str]] = {
    "local": (*_RUN, "--local", _PROGRAM),
    "resident": (*_RUN, "--engine", "resident", _PROGRAM),
    "epochs": (*_RUN, "--engine", "epochs", _PROGRAM),
    "bare": (sys.executable, "-m", "benchmarks.own.first_result_spark"),
}
_STARTING = "starting Spark"
_WORDS = [word for line in LINES for word in split(line)]


class Seen(NamedTuple):
    """What came of a command.

    Attributes:
        first: seconds until its first line on standard output.
        starting: seconds until it said that it starts Spark; None if it did not.
        lines: how many lines there were on standard output.
    """

    first: float
    starting: float | None
    lines: int


def watch(command: Sequence[str]) -> Seen:
    """Run a command to its end.

    Raises:
        RuntimeError: when it fails, or prints nothing.
    """
    started = time.monotonic()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # NB: or the first line would come with the last one
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said: list[tuple[float, str]] = []
        reader = threading.Thread(target=said.extend, args=(_timed(process.stderr),))
        reader.start()
        printed = list(_timed(process.stdout))
        reader.join()
    if process.returncode or not printed:
        told = "".join(line for _, line in said)
        message = f"{' '.join(command)} ended with exit code {process.returncode}:\n{told}"
        raise RuntimeError(message)
    starting = (at for at, line in said if _STARTING in line)
    begun = next(starting, None)
    return Seen(printed[0][0] - started, None if begun is None else begun - started, len(printed))


def _timed(stream: IO[str]) -> Iterator[tuple[float, str]]:
    return ((time.monotonic(), line) for line in stream)


def run(rounds: int) -> Iterator[Mapping[str, Seen]]:
    """Yield what came of the commands in each round."""
    for number in range(rounds):
        names = list(COMMANDS)[:: -1 if number % 2 else 1]
        seen = {name: watch(COMMANDS[name]) for name in names}
        for name, each in seen.items():
            # a running count of each word, or the counts of all words at the end
            expected = len(set(_WORDS) if name == "bare" else _WORDS)
            check(f"the number of lines of {name}", each.lines, expected)
        yield seen


def figures_of(rounds: Sequence[Mapping[str, Seen]]) -> dict[str, float]:
    """Return the figures of some rounds."""
    times = {name: [seen[name].first for seen in rounds] for name in COMMANDS}
    starting = [seen[name].starting for seen in rounds for name in ("resident", "epochs")]
    times["starting_spark"] = [at for at in starting if at is not None]
    figures: dict[str, float] = {}
    for name, each in times.items():
        figures |= {name: median(each), f"{name}_lowest": min(each), f"{name}_highest": max(each)}
    for name in ("resident", "epochs"):
        found = ratio([seen[name].first / seen["bare"].first for seen in rounds])
        assert found is not None
        figures[f"{name}_to_bare"] = found.median
        figures[f"{name}_to_bare_lowest"] = found.lowest
        figures[f"{name}_to_bare_highest"] = found.highest
    return figures


def main() -> None:
    """Run the task on the command line."""
    task = parse_task()
    emit(Measurement(records=task.records, figures=figures_of(list(run(task.records)))))


if __name__ == "__main__":
    main()
