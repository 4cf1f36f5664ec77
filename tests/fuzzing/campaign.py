"""Many mutants, in processes of their own, so that a crash or a hang is one more outcome."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tests.fuzzing.mutations import Mutation
from tests.fuzzing.trial import Laboratory, Result

#: a mutant that takes longer hangs, in seconds; generous, for machines that do other work as well
_DEADLINE = 120.0
_UNKNOWN = Mutation("?", "?", False)


def try_out(seeds: Iterable[int], processes: int) -> Iterator[Result]:
    """Try the mutants of all seeds, in any order."""
    waiting = iter(seeds)
    directory = tempfile.mkdtemp(prefix="fuzzing-")
    workers = [_Worker(directory) for _ in range(processes)]
    try:
        busy = [worker for worker in workers if worker.take(waiting)]
        while busy:
            ready = wait([worker.line for worker in busy], _DEADLINE)
            for worker in busy if not ready else [w for w in busy if w.line in ready]:
                yield worker.result()
            busy = [worker for worker in busy if worker.seed is not None or worker.take(waiting)]
    finally:
        for worker in workers:
            worker.stop()
        shutil.rmtree(directory, ignore_errors=True)


class _Worker:
    """A process, and the mutant that it has."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.seed: int | None = None
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, other = context.Pipe()
        self._process = context.Process(target=_work, args=(other, self._directory), daemon=True)
        self._process.start()
        other.close()

    def take(self, seeds: Iterator[int]) -> bool:
        """Give it the next mutant, if there is one."""
        self.seed = next(seeds, None)
        if self.seed is not None:
            self.line.send(self.seed)
        return self.seed is not None

    def result(self) -> Result:
        """Return what came of its mutant; a process that is gone or hangs is replaced."""
        assert self.seed is not None
        seed, self.seed = self.seed, None
        try:
            if self.line.poll(0):
                found = self.line.recv()
                assert isinstance(found, Result)
                return found
            outcome, detail = "hang", f"no answer in {_DEADLINE} s"
        except (EOFError, OSError):
            self._process.join()
            outcome, detail = "crash", f"exit code {self._process.exitcode}"
        self._process.kill()
        self._start()
        return Result(seed, "?", _UNKNOWN, "?", outcome, detail)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


def _work(line: Connection, directory: str) -> None:
    logging.disable()  # thousands of starts are not worth a line each
    own = Path(directory, str(os.getpid()))
    own.mkdir()
    tempfile.tempdir = str(own)
    os.environ["TMPDIR"] = os.environ["HOLDFAST_RUNTIME_DIR"] = str(own)
    own.chmod(0o700)
    laboratory = Laboratory(own)
    while True:
        line.send(laboratory.try_out(line.recv()))


def table(results: Iterable[Result]) -> str:
    """Return the outcomes by kind of file and change, as Markdown."""
    counts: Counter[tuple[str, str, str]] = Counter()
    outcomes: set[str] = set()
    for result in results:
        counts[result.mutation.file, result.mutation.how, result.outcome] += 1
        outcomes.add(result.outcome)
    columns = sorted(outcomes)
    rows = sorted({(file, how) for file, how, _ in counts})
    lines = [
        f"| file | change | {' | '.join(columns)} |",
        f"| --- | --- |{' ---: |' * len(columns)}",
    ]
    for file, how in rows:
        cells = " | ".join(f"{counts[file, how, column]:,}" for column in columns)
        lines.append(f"| {file} | {how} | {cells} |")
    sums = " | ".join(
        f"{sum(n for (_, _, o), n in counts.items() if o == column):,}" for column in columns
    )
    return "\n".join([*lines, f"| all | | {sums} |"])


def report(results: list[Result], tell: Callable[[str], None]) -> bool:
    """Tell the table and the first of what is forbidden; return whether there was nothing."""
    tell(table(results))
    bad = [result for result in results if not result.allowed]
    for result in bad[:40]:
        mutation = result.mutation
        tell(
            f"seed {result.seed}: {result.outcome}: {result.subject}, {mutation.file}, "
            f"{mutation.how}, {result.action}: {result.detail}"
        )
    return not bad
