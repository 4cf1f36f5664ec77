"""One mutant: it is looked at, and a job is started from it; what came of it."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from holdfast.errors import HoldfastError
from tests.fuzzing.canary import Canary
from tests.fuzzing.mutations import Mutation, mutate
from tests.fuzzing.subjects import Subject, look, make_subjects, run_from

#: more memory than that is too much for a savepoint of some kilobytes
_MEMORY_KB = 256 * 1024
_STATUS = Path("/proc/self/status")

RIGHT = "right result"
REFUSED = "refused"
#: the checksum is right, and so is the encoding: nobody could tell that it is not what was written
OTHER_VALUES = "other values, validly encoded"
#: the metadata is that of an earlier savepoint of the job, and so are all files that it names
EARLIER = "the earlier savepoint, whole"


@dataclass(frozen=True)
class Result:
    """What came of a mutant.

    Attributes:
        outcome: how it went; everything but the four above is forbidden.
        detail: for people.
    """

    seed: int
    subject: str
    mutation: Mutation
    action: str
    outcome: str
    detail: str = ""

    @property
    def allowed(self) -> bool:
        return self.outcome in (RIGHT, REFUSED, OTHER_VALUES, EARLIER)


class Laboratory:
    """The subjects in a process of its own, and what right results are."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._canary = Canary(directory)
        self._subjects = make_subjects(directory / "subjects")
        self._read = {subject.name: _Expected.of(subject, look) for subject in self._subjects}
        self._given = {
            subject.name: _Expected.of(subject, partial(self._run, subject))
            for subject in self._subjects
            if not subject.pickled
        }

    def _run(self, subject: Subject, path: Path) -> Counter[str]:
        return run_from(path, subject.backend, self._scratch())

    def _scratch(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._directory))

    def try_out(self, seed: int) -> Result:
        """Make the mutant of a seed and see what comes of it."""
        random = Random(seed)
        subject = random.choice(self._subjects)
        scratch = self._scratch()
        try:
            root = scratch / "mutant"
            shutil.copytree(subject.root, root)
            mutation = mutate(random, subject, root, self._canary)
            runs = not subject.pickled and random.random() < 0.3
            return self._observe(seed, subject, mutation, root, scratch, runs)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _observe(
        self,
        seed: int,
        subject: Subject,
        mutation: Mutation,
        root: Path,
        scratch: Path,
        runs: bool,
    ) -> Result:
        before = _reset_memory()
        with self._canary.watching(self._directory, Path(tempfile.gettempdir())) as seen:
            if runs:
                run = partial(run_from, root / subject.start, subject.backend, scratch / "run")
                outcome, detail = _judge(run, self._given[subject.name], mutation)
            else:
                read = partial(look, root / subject.start)
                outcome, detail = _judge(read, self._read[subject.name], mutation)
        if (taken := _most_memory() - before) > _MEMORY_KB:
            outcome, detail = "too much memory", f"{taken} kB"
        if seen:
            outcome, detail = seen[0].partition(":")[0], "; ".join(seen)
        return Result(
            seed, subject.name, mutation, "run" if runs else "look", outcome, detail[:500]
        )


@dataclass(frozen=True)
class _Expected:
    """What a subject holds or gives, and what an earlier savepoint of its job does."""

    right: Counter[str]
    earlier: Counter[str] | None

    @classmethod
    def of(cls, subject: Subject, act: Callable[[Path], Counter[str]]) -> _Expected:
        earlier = None if subject.earlier is None else act(subject.earlier)
        return cls(act(subject.root / subject.start), earlier)


def _judge(
    act: Callable[[], Counter[str]], expected: _Expected, mutation: Mutation
) -> tuple[str, str]:
    try:
        found = act()
    except HoldfastError as error:
        return REFUSED, f"{type(error).__name__}: {error}"
    except Exception as error:
        return "foreign error", _told(error)
    if found == expected.right:
        return RIGHT, ""
    if found == expected.earlier and mutation.replaces_metadata:
        return EARLIER, ""
    if mutation.forged:
        return OTHER_VALUES, ""
    return "wrong result", _difference(found, expected.right)


def _told(error: Exception) -> str:
    trace, places = error.__traceback__, []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(error).__name__}: {str(error)[:200]} at {' '.join(places[-6:])}"


def _difference(found: Counter[str], expected: Counter[str]) -> str:
    return f"missing {list(expected - found)[:3]}, too many {list(found - expected)[:3]}"


def _reset_memory() -> int:
    """Let the kernel forget the peak so far; return what is taken now, in kB; 0: nobody knows."""
    if not _STATUS.exists():
        return 0
    Path("/proc/self/clear_refs").write_text("5")
    return _most_memory()


def _most_memory() -> int:
    if not _STATUS.exists():
        return 0
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1])
