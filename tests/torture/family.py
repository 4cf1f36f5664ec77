"""Acts as the processes of a job: ``python -m tests.torture.family ORDER``.

A program has a JVM, two executors with a worker each, and the process of a source. All of them do
nothing, look like those of a job, and end with the process that started them.
A program with the argument ``alone`` has no other processes.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from holdfast.torture.order import Order, read_order

EXECUTOR = "--executor-id"


def main(arguments: list[str]) -> None:
    """Start what belongs to a process, and wait: it is killed, or its parent ends."""
    if arguments[0].endswith("order.json"):
        family = _job(read_order(arguments[0]))
        signal.pause()
    else:
        family = [_start("worker", arguments[1])] if arguments[0] == EXECUTOR else []
        sys.stdin.read()
    del family


def _job(order: Order) -> list[subprocess.Popen[bytes]]:
    if "alone" in order.arguments:
        return []
    return [
        _start("org.apache.spark.deploy.SparkSubmit"),
        _start(EXECUTOR, "1"),
        _start(EXECUTOR, "2"),
        # NB: the name of the module comes before the directory, as in the listing of a real one
        _start("holdfast.runtime.operators.sources.loop_process", order.directory),
    ]


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.torture.family", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE)


if __name__ == "__main__":
    main(sys.argv[1:])
