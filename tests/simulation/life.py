"""The life of a job in one seed: drivers, one after another, until the job is done.

What decides is real: `JobRunner` with its machine, checkpoints, coordinator, book and store, and
`Subtask` with its state. Here is who starts the drivers, as people and schedulers do, and looks at
the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from holdfast.checkpoint import savepoints
from holdfast.checkpoint.saved_image import SavedImage
from holdfast.checkpoint.savepoints import read_savepoint
from holdfast.checkpoint.store import CheckpointStore
from holdfast.common import Configuration
from holdfast.driver.job.runner import JobRunner
from holdfast.errors import HoldfastError
from holdfast.plan.model import Plan
from holdfast.runtime import subtask as subtask_module
from holdfast.runtime.worker.injected_faults import SimulatedKill
from holdfast.runtime.worker.job_code import JobCode
from tests.simulation import stage
from tests.simulation.cluster import Cluster
from tests.simulation.engine import EpochsEngine, ResidentEngine, SimulatedEngine
from tests.simulation.job import NAME, Shape, prepare
from tests.simulation.pipes import small_world
from tests.simulation.reign import Reign, Results, check_excuse
from tests.simulation.resident import ResidentCluster
from tests.simulation.verifier import Image, check_image, read_image
from tests.simulation.world import Violation, World

DIRECTORY = f"/checkpoints/{NAME}"
#: a job that takes more epochs than that does not come to its end
_MANY_EPOCHS = 120
#: slots that are lost again and again keep things going wrong for so many epochs at most
_LATEST_CALM = 60


class SeedFailed(AssertionError):
    """A seed in which the protocol broke a promise; tells the story, and how to hear it again."""

    def __init__(self, world: World, cause: Exception) -> None:
        story = "\n".join(world.story)
        again = f"python -m tests.simulation {world.seed}"
        super().__init__(f"seed {world.seed}: {cause!r}\n{story}\n\nagain: {again}")
        self.cause = cause


def simulate(seed: int) -> World:
    """Live through a seed.

    Raises:
        SeedFailed: for a violation, or for whatever the driver should not have raised.
    """
    world = World(seed)
    with stage.entered(world), _seeded(world.random), small_world(world):
        try:
            Life(world).live()
        except Exception as error:
            raise SeedFailed(world, error) from error
    return world


@contextmanager
def _seeded(random: Random) -> Iterator[None]:
    """Names that are unique by chance are so by the seed's chance."""
    ids = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{random.getrandbits(128):032x}"))
    with patch.object(subtask_module, "uuid", ids), patch.object(savepoints, "uuid", ids):
        yield


class Life:
    """One job on one disk, from its first driver to its last.

    Attributes:
        done: whether nobody will start it again.
        savepoints: those that were made, and that nobody deletes.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = CheckpointStore(DIRECTORY, world.files)
        self.cluster = Cluster(world)
        self.resident_cluster = ResidentCluster(world)
        world.disturb = self._stir
        self.done = False
        self.savepoints: list[str] = []
        self._random = world.random
        self._resident = world.begins_resident
        self._shape = self._first_shape()
        self._settings = self._choose_settings()
        self._calm_after = self._random.randrange(4, 12) * (1 + self._resident)
        self._drivers = self._epochs = 0
        self._last_barrier = 0
        #: where the next driver goes on from, instead of from the last checkpoint
        self._restore_path: str | None = None
        world.is_complete = self._is_complete

    def _first_shape(self) -> Shape:
        replayable, long = self._random.random() < 0.5, self._random.random() < 0.3
        return self._widths(Shape(replayable, long, 1, 1, 1))

    def _widths(self, shape: Shape) -> Shape:
        source, totals = self._random.choice((1, 2, 2, 3)), self._random.choice((1, 2, 3))
        return replace(shape, source=source, totals=totals, audit=self._random.choice((1, 1, 2)))

    def _choose_settings(self) -> dict[str, str]:
        choice = self._random.choice
        return {
            "execution.checkpointing.interval": choice(("100ms", "30ms")),
            "execution.checkpointing.timeout": "1s",
            "execution.checkpointing.min-pause": choice(("0ms", "50ms")),
            "execution.checkpointing.max-concurrent-checkpoints": choice(("1", "3", "5")),
            "execution.checkpointing.dir": "/checkpoints",
            "execution.checkpointing.num-retained": choice(("1", "2", "3")),
            "execution.checkpointing.tolerable-failed-checkpoints": choice(("0", "1", "5")),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.state-recovery.claim-mode": choice(("CLAIM", "NO_CLAIM", "NO_CLAIM")),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": choice(("1", "2", "5")),
            "restart-strategy.fixed-delay.delay": "10ms",
            "holdfast.restart.same-record-limit": ("1", "2", "0", "0")[self.world.seed % 4],
            "holdfast.slots.min": "2" if self.world.seed % 7 == 0 else "1",
            "holdfast.slots.stable": "100ms" if self.world.seed % 15 == 0 else "0ms",
        }

    # Drivers

    def live(self) -> None:
        while not self.done:
            self._drivers += 1
            try:
                self._run_driver()
            except SimulatedKill:
                self.world.counts["a driver died"] += 1
                self.world.driver_dead = False
                self.resident_cluster.lose_driver()
                self.perhaps_crash()
                self.choose_start()
            self.world.check()

    def _run_driver(self) -> None:
        if self._drivers > 1 and self.world.happens("the job is rescaled"):
            self._shape = self._widths(self._shape)
        if self._drivers > 1 and self.world.happens("the job changes its engine"):
            self._resident = not self._resident
        if self._has("finished"):
            self._forget()
        try:
            reign = self._start_driver()
        except HoldfastError as error:
            check_excuse(error)
            self.world.make_space()
            return
        try:
            self._check_start(reign.runner.checkpoints.start_from)
            reign.run()
        finally:
            self.world.requests = lambda: None
            reign.runner.checkpoints.store.release()

    def _start_driver(self) -> Reign:
        world, name = self.world, f"driver {self._drivers}"
        prepared, results = prepare(self._shape), Results()
        kind = "resident" if self._resident else "epochs"
        world.tell(f"{name} starts: {self._shape}, {kind}")
        world.counts[f"a driver with the engine {kind!r}"] += 1
        world.new_driver()
        engine = self._engine(prepared.code)
        runner = JobRunner(
            engine,
            prepared.plan,
            name,
            self._configuration(),
            Path(f"/scratch/{self._drivers}"),
            collected={prepared.results: results},
            clock=world.clock,
            files=world.files,
            simulated=True,
            sleep=lambda seconds: reign.wait(seconds),
        )
        reign = Reign(self, runner, engine, results)
        return reign

    def _engine(self, code: JobCode) -> SimulatedEngine:
        if self._resident:
            return ResidentEngine(self.world, self.resident_cluster, code)
        return EpochsEngine(self.world, self.cluster, code)

    def _stir(self) -> None:
        self.cluster.stir()
        self.resident_cluster.stir()

    @property
    def restarts_allowed(self) -> int:
        """How often a driver may start the job again."""
        return int(self._settings["restart-strategy.fixed-delay.attempts"])

    @property
    def failures_per_record(self) -> int:
        """How many failures on a record the job bears; 0 for any number."""
        return int(self._settings["holdfast.restart.same-record-limit"])

    def other_widths(self, plan: Plan) -> dict[str, int]:
        """Another parallelism for each operator, by uid."""
        shape = self._widths(self._shape)
        last = shape.audit if shape.long else shape.totals
        widths = {
            **dict.fromkeys(("source", "buffer", "raw"), shape.source),
            **dict.fromkeys(("totals", "counted"), shape.totals),
            "audit": shape.audit,
        }
        return {op.uid: widths.get(op.uid, last) for op in plan.operators.values()}

    def _configuration(self) -> Configuration:
        configuration = Configuration()
        for key, value in self._settings.items():
            configuration.set_string(key, value)
        if self._restore_path is not None:
            configuration.set_string("execution.state-recovery.path", self._restore_path)
        return configuration

    def perhaps_crash(self) -> None:
        """Nothing of the job runs; perhaps the machine goes down."""
        if self.world.happens("the machine crashes"):
            self.world.tell("the machine crashes")
            self.world.files.crash(self._random)
            self.cluster.crash()
            self.resident_cluster.crash()

    def choose_start(self) -> None:
        """The next driver goes on from the last checkpoint, unless somebody names another."""
        self._restore_path = None
        if self.savepoints and self.world.happens("the job starts from a savepoint"):
            self._restore_path = self._random.choice(self.savepoints)
            if self._settings["execution.state-recovery.claim-mode"] == "CLAIM":
                self.savepoints.remove(self._restore_path)
        elif self.world.happens("the job starts from an older checkpoint"):
            retained = self.store.completed()
            if retained:
                self._restore_path = f"{DIRECTORY}/chk-{self._random.choice(retained)}"
        if self._restore_path is not None:
            self.world.tell(f"the next driver is to start from {self._restore_path}")

    def run_again(self) -> None:
        """The job came to its end, and is started once more: it begins at the beginning."""
        self.world.tell("the job is run again")
        self.perhaps_crash()
        self._calm_after += 4
        self.world.calm = False

    def go_on_with_fewer_slots(self) -> None:
        """Let the job see how they come back, but not for ever: it is to come to its end."""
        self._calm_after = min(self._calm_after + 3, max(self._calm_after, _LATEST_CALM))

    def count_epoch(self) -> None:
        self._epochs += 1
        if self._epochs >= self._calm_after:
            self.world.calm_down()
        if self._epochs > _MANY_EPOCHS:
            raise Violation(f"the job does not come to its end in {_MANY_EPOCHS} epochs")

    # What the disk says

    def see_complete(self, checkpoint: int) -> bool:
        """Whether a checkpoint is on the disk; if so, no crash must take it from now on."""
        complete = self._is_complete(checkpoint)
        if complete:
            self.world.complete.add(checkpoint)
            self.world.was_complete.add(checkpoint)
        return complete

    def begin_barrier(self, checkpoint: int) -> None:
        """The driver gave a checkpoint its id."""
        if checkpoint <= self._last_barrier:
            raise Violation(f"checkpoint id {checkpoint} was given after {self._last_barrier}")
        self._last_barrier = checkpoint

    def read_image(self, start: SavedImage | None) -> Image | None:
        """What a checkpoint holds, which is checked."""
        if start is None:
            return None
        storage = self.store.storage
        if start.directory is not None:
            storage = storage.elsewhere(start.directory)
        image = read_image(f"checkpoint {start.metadata.id}", start.metadata, storage)
        check_image(image, self._shape.replayable)
        return image

    def check_savepoint(self, path: str) -> Image:
        """A savepoint was answered: it is there, whole and right."""
        saved = read_savepoint(path, self.world.files)
        image = read_image(path, saved.metadata, saved.storage)
        check_image(image, self._shape.replayable)
        self.savepoints.append(path)
        return image

    def check_finished(self) -> None:
        """The job came to its end, so all it leaves is the mark that it did."""
        files = {path for path in self.world.files.files if path.startswith(f"{DIRECTORY}/")}
        mark, lock = f"{DIRECTORY}/finished", f"{DIRECTORY}/lock"
        left = sorted(files - {mark, lock} - self.world.late_files)
        if left or mark not in files:
            raise Violation(f"the job is finished, and has left {left}")

    def _check_start(self, start: SavedImage | None) -> None:
        """No checkpoint that anybody has seen complete is lost."""
        found = 0 if start is None else start.metadata.id
        known = max(self.world.complete, default=0)
        if self._restore_path is not None:
            if start is None:
                raise Violation(f"the driver was to start from {self._restore_path}, and did not")
        elif found < known:
            raise Violation(f"checkpoint {known} was complete; the driver starts from {found}")

    def _is_complete(self, checkpoint: int) -> bool:
        return self._has(f"chk-{checkpoint}/_metadata")

    def _has(self, name: str) -> bool:
        return self.world.files.status(f"{DIRECTORY}/{name}") is not None

    def _forget(self) -> None:
        """The job is over by what the disk says; its checkpoints are gone, or will go."""
        self.world.complete.clear()
        self._restore_path = None
