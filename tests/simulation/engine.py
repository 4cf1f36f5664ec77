"""The clusters as engines of the driver: their attempts start, run and end, or do not."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.saved_image import SavedImage
from holdfast.datastream.engines import needed_slots
from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome, SlotsMissingError
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.runtime.wire.protocol import EpochTask, StoredState
from holdfast.runtime.worker.job_code import JobCode, make_job_code
from tests.simulation.cluster import Cluster, ClusterGaveUp
from tests.simulation.resident import Fleet, ResidentCluster
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from tests.simulation.reign import Reign


#: more than any plan of the job needs
_SLOTS = 5


class SimulatedEngine(Engine):
    """Sees to it that the cluster is asked for nothing impossible.

    Attributes:
        tasks: what the last epoch was told.
        tries: how often it was run.
        reign: hears of what is executed.
    """

    reign: Reign

    def __init__(self, world: World, code: JobCode) -> None:
        self.tasks: Sequence[EpochTask] = ()
        self.tries = 0
        self._world, self._code = world, code
        self._runs = self._has_turn = self._prepared = False

    @abstractmethod
    def _take_plan(self, job: PlannedJob, code: JobCode) -> None:
        """A plan is prepared."""

    @abstractmethod
    def _execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        """Run an epoch."""

    def results_until(self, checkpoint: int) -> Counter[Any] | None:
        """What was delivered in the attempt before a checkpoint; None: all that was so far."""
        return None

    def prepare(self, job: PlannedJob) -> None:
        self._world.step()
        if self._runs:
            self._world.violate("a plan is prepared while an attempt runs")
        if self._prepared and self._world.happens("a plan is refused"):
            raise JobDefinitionError("there are not enough slots for that plan")
        code = self._code
        if self._prepared:
            code = make_job_code("", job.plan, "")
        self._take_plan(job, code)
        self._prepared = True

    def start(self, attempt: int, start: SavedImage | None) -> None:
        self._world.step()
        if self._runs:
            self._world.violate(f"attempt {attempt} starts while another one runs")
        if self._world.happens("a start fails"):
            raise ClusterGaveUp("the attempt could not be started")
        self._runs = True

    def await_turn(self, due_ms: int | None = None) -> None:
        self._world.step()
        if not self._runs:
            self._world.violate("an epoch is to be run, and no attempt was started")
        if self._world.happens("the engine stops by itself"):
            raise ClusterGaveUp("the engine has stopped")
        self._has_turn = True

    def execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        if not self._has_turn:
            self._world.violate(f"epoch {tasks[0].epoch} is run without a turn")
        self.tries = self.tries + 1 if tasks is self.tasks else 1
        self.tasks = tasks
        if self.tries > 1 and not self.abilities.reruns:
            self._world.violate("an epoch is run again, which the engine cannot do")
        self.reign.executes(tasks[0], self.tries)
        outcome = self._execute(tasks)
        if self._world.happens("an epoch is slow"):
            self._world.clock.advance(2000)
        return outcome

    def end_turn(self) -> None:
        self._has_turn = False

    def stop(self) -> None:
        self._world.step()
        self._runs = self._has_turn = False

    def explain(self, error: BaseException, what: str = "") -> BaseException:
        if not isinstance(error, HoldfastError):
            raise Violation(f"the driver raises {error!r}") from error
        return error

    def close(self) -> None:
        if self._runs:
            self._world.violate("the job has ended, and an attempt still runs")


class EpochsEngine(SimulatedEngine):
    """Runs epochs one after another."""

    def __init__(self, world: World, cluster: Cluster, code: JobCode) -> None:
        super().__init__(world, code)
        self._cluster = cluster
        # an engine whose subtasks keep their state cannot go back to the state before an epoch
        self.abilities = Abilities(reruns=world.random.random() < 0.7, resizes=True)

    def _take_plan(self, job: PlannedJob, code: JobCode) -> None:
        self._cluster.begin(job.plan, code, job.name, job.storage)

    def _execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        return self._cluster.execute(tasks)


class ResidentEngine(SimulatedEngine):
    """Sends marks through a stream that goes on by itself.

    Attributes:
        slots: how many there are now; a driver begins with slots enough.
    """

    abilities = Abilities(reruns=False, resizes=True, keeps_state=True)
    _job: PlannedJob
    _plan_code: JobCode

    def __init__(self, world: World, cluster: ResidentCluster, code: JobCode) -> None:
        super().__init__(world, code)
        self._cluster = cluster
        self._cuts: dict[int, Counter[Any]] = {}
        self.slots = _SLOTS

    def _take_plan(self, job: PlannedJob, code: JobCode) -> None:
        self._job, self._plan_code = job, code

    @property
    def _fleet(self) -> Fleet:
        assert self._cluster.fleet is not None
        return self._cluster.fleet

    def results_until(self, checkpoint: int) -> Counter[Any] | None:
        return self._cuts[checkpoint]

    def start(self, attempt: int, start: SavedImage | None) -> None:
        self._await_slots(attempt)
        super().start(attempt, start)
        self._cuts.clear()
        self._cluster.start(self._job, self._plan_code, attempt)

    def _await_slots(self, attempt: int) -> None:
        needed = needed_slots(self._job.plan)
        if attempt and self._world.happens("slots are gone"):
            self.slots = self._world.random.choice(
                (needed - 1, self._world.random.randrange(needed))
            )
            self._world.tell(f"{self.slots} slots are left")
        if self._world.calm:
            self.slots = _SLOTS
        if self.slots < needed:
            self._world.clock.advance(1000)
            self._world.step()
            raise SlotsMissingError(needed, self.slots)

    def available_slots(self) -> int:
        if self._world.calm:
            self.slots = _SLOTS
        elif self._world.happens("slots come back"):
            self.slots = self._world.random.randint(min(self.slots + 1, _SLOTS), _SLOTS)
        return self.slots

    def await_turn(self, due_ms: int | None = None) -> None:
        super().await_turn(due_ms)
        # NB: a job with fewer slots than it wants is to see how they come back, before its end
        few = self.reign.runner.machine.plans.is_reduced
        self._fleet.go_on(self._world.random.choice((0, 3) if few else (0, 3, 10, 40)))

    def _execute(self, tasks: Sequence[EpochTask]) -> EpochOutcome:
        outcome = self._fleet.round(tasks)
        checkpoint = tasks[0].checkpoint
        if checkpoint is not None:
            self._cuts[checkpoint] = self._fleet.results_at_mark()
        return outcome

    def stored(self, patience_ms: int = 0) -> list[StoredState]:
        fleet = self._cluster.fleet
        if fleet is None:
            return []
        fleet.go_on(self._world.random.choice((20, 100, 200) if patience_ms else (0, 3, 10)))
        stored = fleet.rounds.take_stored()
        if not stored:
            self._world.clock.advance(patience_ms)
            self._world.step()
        return stored

    def stop(self) -> None:
        super().stop()
        self._cluster.stop()
