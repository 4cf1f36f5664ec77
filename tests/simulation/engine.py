"""The cluster as an engine of the driver: its attempts start, run and end, or do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.driver.engine import Engine, PlannedJob
from holdfast.driver.job_events import Abilities
from holdfast.driver.outcome import EpochOutcome
from holdfast.driver.start import Start
from holdfast.errors import HoldfastError, JobDefinitionError
from holdfast.runtime.job import JobCode, make_job_code
from holdfast.runtime.protocol import EpochTask
from tests.simulation.cluster import Cluster, ClusterGaveUp
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from tests.simulation.reign import Reign


class SimulatedEngine(Engine):
    """Runs epochs on the cluster, and sees to it that it is asked for nothing impossible.

    Attributes:
        tasks: what the last epoch was told.
        tries: how often it was run.
        reign: hears of what is executed.
    """

    reign: Reign

    def __init__(self, world: World, cluster: Cluster, code: JobCode) -> None:
        self.tasks: Sequence[EpochTask] = ()
        self.tries = 0
        self._world, self._cluster, self._code = world, cluster, code
        self._runs = self._has_turn = self._prepared = False
        # an engine whose subtasks keep their state cannot go back to the state before an epoch
        self.abilities = Abilities(reruns=world.random.random() < 0.7, resizes=True)

    def prepare(self, job: PlannedJob) -> None:
        self._world.step()
        if self._runs:
            self._world.violate("a plan is prepared while an attempt runs")
        if self._prepared and self._world.happens("a plan is refused"):
            raise JobDefinitionError("there are not enough slots for that plan")
        code = self._code
        if self._prepared:
            code = make_job_code("", job.plan, "")
        self._cluster.begin(job.plan, code, job.name, job.storage)
        self._prepared = True

    def start(self, attempt: int, start: Start | None) -> None:
        self._world.step()
        if self._runs:
            self._world.violate(f"attempt {attempt} starts while another one runs")
        if self._world.happens("a start fails"):
            raise ClusterGaveUp("the attempt could not be started")
        self._runs = True

    def await_turn(self) -> None:
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
        outcome = self._cluster.execute(tasks)
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
