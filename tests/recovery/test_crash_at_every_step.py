"""The verifying job crashes at every step of an epoch, and at several; its output does not show it.

Here everything is in one process: a killed worker is replaced, and a killed driver is an exception
after which another one starts in the same directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError
from holdfast.filesystem import file_system_of, join
from holdfast.testing import Fault, FaultPlan, LocalExecutor, SimulatedKill
from tests.recovery.verifying import Settings, make_job, verify

#: steps of the driver; the others are those of a subtask
DRIVER = (1, 8, 9, 10)
STEPS = range(1, 11)
#: with a checkpoint in every other epoch, from the first on
PLAIN_EPOCH, CHECKPOINT_EPOCH = 3, 4


class Life:
    """A job from its first start to its end.

    Attributes:
        failures: how often an epoch failed, and the job went back to a checkpoint.
        deaths: how often the driver died.
        epochs: the numbers of the epochs that were accepted.
    """

    def __init__(self, job: Settings, faults: Sequence[Fault]) -> None:
        self.plan = FaultPlan(job.folder / "faults", faults)
        self._job = replace(job, faults=str(self.plan.directory))
        self._turns = 0
        self.failures = self.deaths = 0
        self.epochs: list[int] = []

    def live(self) -> None:
        """Start the job until it has come to its end."""
        finished = False
        while not finished:
            executor = LocalExecutor(
                make_job(self._job), quota=self._job.epoch, workers=2, seed=self._turns
            )
            with executor as run:
                try:
                    self._run(run)
                    finished = True
                except SimulatedKill:
                    self.deaths += 1
                self.epochs += [report.epoch for report in run.reports]

    def _run(self, run: LocalExecutor) -> None:
        while not run.finished:
            with_checkpoint = self._turns % 2 == 0
            self._turns += 1
            try:
                run.epoch(checkpoint=with_checkpoint)
            except HoldfastError:
                self.failures += 1
                run.recover()


def check(job: Settings, faults: Sequence[Fault]) -> Life:
    """Let a job live through these faults, all of them, and look at what it left behind."""
    life = Life(job, faults)
    life.live()
    assert life.plan.happened == len(faults)
    verify(job)
    return life


def expect(life: Life, faults: Sequence[Fault]) -> None:
    """Every fault had its effect: an exception fails the epoch, a kill ends the process.

    Several subtasks may fail in one epoch; a killed worker is replaced within it.
    """
    exceptions = [fault.step in DRIVER for fault in faults if not fault.kill]
    least = sum(exceptions) + (not all(exceptions))
    assert least <= life.failures <= len(exceptions)
    assert life.deaths == sum(fault.kill and fault.step in DRIVER for fault in faults)


@pytest.fixture(scope="module")
def last_epochs(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    """The epochs of an undisturbed run; the last two: with the last checkpoint, and closing."""
    job = Settings(tmp_path_factory.mktemp("undisturbed"))
    return check(job, []).epochs


kills = pytest.mark.parametrize("kill", [False, True], ids=["exception", "kill"])


@kills
@pytest.mark.parametrize(
    ("step", "with_checkpoint"),
    # a step that only an epoch with a checkpoint has is not reached in others
    [place for place in product(STEPS, [True, False]) if place[1] or place[0] < 9],
)
def test_a_crash(tmp_path: Path, step: int, with_checkpoint: bool, kill: bool) -> None:
    epoch = CHECKPOINT_EPOCH if with_checkpoint else PLAIN_EPOCH
    faults = [Fault(step, epoch, kill, with_checkpoint)]
    expect(check(Settings(tmp_path), faults), faults)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_on_rocksdb(tmp_path: Path, step: int) -> None:
    job = Settings(tmp_path, numbers=400, backend="rocksdb")
    faults = [Fault(step, CHECKPOINT_EPOCH, kill=step % 2 == 0, with_checkpoint=True)]
    expect(check(job, faults), faults)


@kills
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_before_there_is_a_checkpoint(tmp_path: Path, step: int, kill: bool) -> None:
    faults = [Fault(step, 0, kill)]
    expect(check(Settings(tmp_path), faults), faults)


@kills
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_with_the_last_checkpoint(
    tmp_path: Path, last_epochs: list[int], step: int, kill: bool
) -> None:
    faults = [Fault(step, last_epochs[-2], kill)]
    expect(check(Settings(tmp_path), faults), faults)


@kills
@pytest.mark.parametrize("step", range(1, 9))
def test_a_crash_while_the_job_closes(
    tmp_path: Path, last_epochs: list[int], step: int, kill: bool
) -> None:
    faults = [Fault(step, last_epochs[-1], kill)]
    expect(check(Settings(tmp_path), faults), faults)


@kills
def test_a_crash_at_every_step_in_a_row(tmp_path: Path, kill: bool) -> None:
    faults = [Fault(step, 2, kill) for step in STEPS]
    expect(check(Settings(tmp_path), faults), faults)


@pytest.mark.parametrize(
    "store",
    # webhdfs is in the suite of all file systems; what a job does with them is the same
    ["s3", pytest.param("hdfs", marks=pytest.mark.spark)],
)
def test_crashes_with_checkpoints_on_other_machines(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    """The driver dies, and workers do; on HDFS, which is slow, only where files are written."""
    given = request.getfixturevalue(store)
    settings = given.options if store == "s3" else {}
    checkpoints = f"{given.uri if store == 's3' else given}/deep/checkpoints"
    job = Settings(tmp_path, checkpoints=checkpoints, spark=tuple(settings.items()))
    steps = STEPS if store == "s3" else (6, 9)
    faults = [Fault(step, 1 + step % 2, True) for step in steps]
    expect(check(job, faults), faults)
    system, path = file_system_of(checkpoints, settings)
    (home,) = system.list_directory(path)
    left = [status.name for status in system.list_directory(join(path, home.name, "state"))]
    assert left == [], "a job that has come to its end leaves no state behind"


@kills
def test_every_subtask_crashes_at_each_of_its_steps(tmp_path: Path, kill: bool) -> None:
    faults = [
        Fault(step, 2, kill, level=level, subtask=subtask)
        for step, level, subtask in product(range(2, 8), (0, 1), (0, 1))
    ]
    expect(check(Settings(tmp_path), faults), faults)


@kills
def test_the_same_step_again_and_again(tmp_path: Path, kill: bool) -> None:
    faults = [Fault(step, 1, kill) for step in (6, 7, 9, 10) for _ in range(4)]
    expect(check(Settings(tmp_path), faults), faults)


@settings(max_examples=12, deadline=None)
@given(
    faults=st.lists(
        st.builds(
            Fault,
            step=st.sampled_from(STEPS),
            epoch=st.integers(0, 8),
            kill=st.booleans(),
            with_checkpoint=st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    ticks=st.sampled_from([0, 100]),
)
def test_any_crashes(faults: list[Fault], ticks: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        expect(check(Settings(Path(folder), ticks=ticks), faults), faults)
