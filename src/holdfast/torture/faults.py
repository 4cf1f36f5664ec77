"""The kinds of faults, and the plan of a run, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["KINDS", "FaultKind", "PlannedFault", "draw", "kinds_named"]

#: the numbered steps of an epoch, as in docs/internals/epoch.md
STEPS: Final = {
    1: "trigger",
    2: "load",
    3: "notify",
    4: "process",
    5: "snapshot",
    6: "persist",
    7: "acknowledge",
    8: "agree",
    9: "complete",
    10: "commit",
}

_EXECUTORS: Final = "only with executors on this machine, as with local-cluster[2,1,1024]"
_SOURCES: Final = "only on the epochs engine, with a SourceFunction"


@dataclass(frozen=True)
class FaultKind:
    """Something that happens to a job.

    Attributes:
        summary: what it does.
        steps: the steps of an epoch at which it can strike, besides at any time.
        only_at_steps: it cannot strike at any time.
        weight: how often it comes, compared with others.
        lasts: from and to, in seconds, until it is undone.
        limit: where it is not possible; empty if it is possible everywhere.
    """

    name: str
    summary: str
    steps: tuple[int, ...] = ()
    only_at_steps: bool = False
    weight: int = 4
    lasts: tuple[float, float] = (0.0, 0.0)
    limit: str = ""


KINDS: Final = (
    FaultKind("kill-worker", "kill -9 of a Python worker", steps=(4, 5, 6, 7), weight=8),
    FaultKind(
        "stop-worker",
        "a Python worker is stopped (SIGSTOP) and woken, sometimes after it was given up",
        lasts=(0.2, 4.0),
    ),
    FaultKind(
        "kill-executor",
        "kill -9 of a Spark executor",
        limit=_EXECUTORS,
    ),
    FaultKind(
        "stop-executor",
        "a Spark executor and its Python workers are stopped (SIGSTOP) and woken",
        lasts=(0.2, 4.0),
        limit=_EXECUTORS,
    ),
    FaultKind("kill-source", "kill -9 of the process of a SourceFunction", limit=_SOURCES),
    FaultKind(
        "stop-source",
        "the process of a SourceFunction is stopped (SIGSTOP) and woken",
        lasts=(0.2, 4.0),
        limit=_SOURCES,
    ),
    FaultKind(
        "kill-driver",
        "kill -9 of the program; it is started again",
        steps=(1, 8, 9, 10),
        weight=2,
    ),
    FaultKind(
        "stop-driver",
        "the program is stopped (SIGSTOP) and woken, sometimes with the JVM of its Spark",
        weight=2,
        lasts=(0.2, 4.0),
    ),
    FaultKind("cut", "a network connection of a worker is cut"),
    FaultKind(
        "fail-task",
        "an exception in a subtask",
        steps=(4, 5, 6, 7),
        only_at_steps=True,
    ),
    FaultKind(
        "fail-store",
        "the checkpoint storage cannot be reached for a while",
        lasts=(0.2, 2.0),
        weight=2,
    ),
    FaultKind("rescale", "the parallelism is changed", weight=2, limit="only if sources allow it"),
    FaultKind(
        "savepoint",
        "the job is stopped with a savepoint, and the program started again from it",
        weight=1,
    ),
)


@dataclass(frozen=True)
class PlannedFault:
    """A fault, and when it strikes.

    Attributes:
        number: its place in the plan, from 1.
        kind: the name of its kind.
        checkpoints: how many checkpoints complete before it, since the fault before it.
        delay: seconds after the last of them.
        step: the step of an epoch at which it strikes after that; None: at once.
        lasts: seconds until it is undone.
        choice: from 0 to 1, chooses among what it can strike.
    """

    number: int
    kind: str
    checkpoints: int
    delay: float
    step: int | None
    lasts: float
    choice: float

    @property
    def moment(self) -> str:
        """Return when it strikes, for a report."""
        if self.step is not None:
            return f"at step {self.step} ({STEPS[self.step]})"
        return f"{self.delay:.2f} s after a checkpoint"


def kinds_named(names: Sequence[str] = ()) -> tuple[FaultKind, ...]:
    """Return the kinds with these names; without names, all.

    Raises:
        ValueError: when there is no such kind.
    """
    known = {kind.name: kind for kind in KINDS}
    unknown = [name for name in names if name not in known]
    if unknown:
        message = f"there is no fault {unknown[0]!r}; there are: {', '.join(known)}"
        raise ValueError(message)
    return tuple(known[name] for name in names) or KINDS


def draw(seed: int, kinds: Sequence[FaultKind], interval: float = 0.3) -> Iterator[PlannedFault]:
    """Yield faults without end; the same for the same arguments.

    ``interval``: that of checkpoints, in seconds.
    """
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        (kind,) = chance.choices(kinds, [kind.weight for kind in kinds])
        # NB: drawn in any case, so that a change of one kind leaves the others as they are
        step, at_step = chance.choice(kind.steps or (0,)), chance.random() < 0.5
        yield PlannedFault(
            number,
            kind.name,
            checkpoints=chance.choice((1, 1, 2)),
            delay=chance.uniform(0.0, interval),
            step=step if kind.only_at_steps or (kind.steps and at_step) else None,
            lasts=chance.uniform(*kind.lasts),
            choice=chance.random(),
        )
