"""The choice of a job's engine: `choose_engine` decides by the plan and the session."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from holdfast.common.options.engine import ENGINE, EngineSetting
from holdfast.datastream.engines import needed_slots, not_for_resident, why_epochs, writes_rows
from holdfast.driver.engine import EngineChoice
from holdfast.errors import JobDefinitionError
from holdfast.plan.model import Plan
from holdfast.printable import counted, get_logger
from holdfast.spark.promised_slots import promised_slots
from holdfast.spark.session import has_executors

_logger = get_logger(__name__)

_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
#: how long Spark itself waits for executors before it runs the first tasks
_REGISTERING: Final = "spark.scheduler.maxRegisteredResourcesWaitingTime"
_REGISTERING_DEFAULT: Final = "30s"
#: seconds to wait for the last tasks of another job to end, or for a late executor
_PATIENCE: Final = 3.0
_LOOK: Final = 0.1
_MS: Final = 1000
_NO_EXECUTORS_REMEDY: Final = (
    "if executors start and end, they cannot connect to it: check spark.driver.host, "
    "spark.driver.bindAddress and the firewall; if none starts, the cluster has too little free "
    "memory or too few free cores: check spark.executor.memory and spark.executor.cores"
)
#: the time at which slots of a session were first requested
_asked: weakref.WeakKeyDictionary[SparkContext, float] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Facts:
    """The facts about a session on which the choice of an engine depends.

    Attributes:
        local: tasks run in the driver's JVM, and there are no executors to wait for.
        dynamic: Spark adds and removes executors dynamically.
        slots: how many tasks can run at the same time in the session.
        free: how many of these slots are free now.
        batch: the job runs in batch mode.
        settles_in: seconds in which the executors of a new session may still register.
        driver: the address to which executors connect; empty if there are some.
    """

    local: bool
    dynamic: bool
    slots: int
    free: int
    batch: bool = False
    settles_in: float = 0.0
    driver: str = ""

    @property
    def lacks_executors(self) -> bool:
        """Whether tasks wait until an executor registers."""
        return not (self.local or self.dynamic or self.slots)


def choose_engine(setting: EngineSetting, plan: Plan, facts: Facts) -> EngineChoice:
    """Return the engine that a job runs on, and the reason.

    Raises:
        JobDefinitionError: if the resident engine is set, and cannot run the job.
    """
    if setting is EngineSetting.EPOCHS:
        return EngineChoice("epochs", f"'{ENGINE}' says so")
    if setting is EngineSetting.RESIDENT:
        _check_resident(plan, facts)
        return EngineChoice("resident", f"'{ENGINE}' says so")
    reason = why_epochs(plan, facts.batch)
    if reason is not None:
        return EngineChoice("epochs", reason)
    if facts.dynamic:
        return EngineChoice("epochs", f"the session has {_DYNAMIC}", surprising=True)
    if facts.free < needed_slots(plan):
        waits = "" if facts.free else "; an epoch runs when there is one"
        if facts.lacks_executors:
            waits += f"; {_NO_EXECUTORS_REMEDY}"
        return EngineChoice("epochs", f"{_needed(plan)}; {_found(facts)}{waits}", surprising=True)
    return EngineChoice("resident", f"{needed_slots(plan)} of {facts.slots} task slots are its own")


def _check_resident(plan: Plan, facts: Facts) -> None:
    refused = not_for_resident(plan)
    if refused is not None:
        raise _error(plan, refused, f"set '{ENGINE}' to auto or epochs")
    if facts.dynamic:
        reason = "the session has dynamic allocation, and so no slots that a job can keep"
        remedy = f"start the session with {_DYNAMIC}=false, or set '{ENGINE}' to auto or epochs"
        raise _error(plan, reason, remedy)
    if facts.free < needed_slots(plan):
        raise _error(plan, f"{_needed(plan)}; {_found(facts)}", _more_slots(plan, facts))


def _error(plan: Plan, reason: str, remedy: str) -> JobDefinitionError:
    return JobDefinitionError(
        f"job '{plan.name}' cannot run on the resident engine: {reason}; {remedy}"
    )


def _needed(plan: Plan) -> str:
    level = plan.widest_level
    widest = plan.operators[level.operators[0]].name
    also = ", and Spark needs a slot to write for its DataFrame sinks" if writes_rows(plan) else ""
    return (
        f"it needs {counted(needed_slots(plan), 'task slot')}: its widest operator "
        f"('{widest}') has {counted(level.parallelism, 'subtask')}{also}"
    )


def _found(facts: Facts) -> str:
    if facts.lacks_executors:
        return f"no executor has registered with the driver at '{facts.driver}'"
    return f"the session has {counted(facts.slots, 'task slot')}, {facts.free} of them free"


def _more_slots(plan: Plan, facts: Facts) -> str:
    if facts.lacks_executors:
        return _NO_EXECUTORS_REMEDY
    slots = needed_slots(plan) + facts.slots - facts.free
    cores = f"local[{slots}]" if facts.local else f"spark.cores.max={slots}, or more executors"
    return (
        f"start the session with more cores ({cores}), lower the parallelism, or set "
        f"'{ENGINE}' to epochs"
    )


def engine_for(
    session: SparkSession, setting: EngineSetting, batch: bool, plan: Plan
) -> EngineChoice:
    """Choose the engine of a job that starts, and log the choice.

    Raises:
        JobDefinitionError: if the resident engine is set, and cannot run the job.
    """

    def read() -> Facts:
        return session_facts(session, batch)

    def read_busy() -> Facts:
        facts = read()
        return replace(facts, free=facts.slots)

    decided = setting is EngineSetting.EPOCHS or why_epochs(plan, batch) is not None
    # a job that needs no slots of its own cannot start either before there is an executor
    facts = await_slots(read_busy, 1) if decided else await_slots(read, needed_slots(plan))
    choice = choose_engine(setting, plan, facts)
    log = _logger.warning if choice.surprising else _logger.info
    log("job '%s' runs on the engine '%s': %s", plan.name, choice.name, choice.reason)
    if decided and facts.lacks_executors:
        _logger.warning("job '%s' waits: %s; %s", plan.name, _found(facts), _NO_EXECUTORS_REMEDY)
    return choice


def check_width(session: SparkSession, job: object, plan: Plan, check: Callable[[], None]) -> None:
    """Check that there are enough slots to continue a stopped resident job with another plan.

    A job that has run does not wait for executors of a new session: it makes no progress meanwhile,
    and can continue with its previous plan. ``check`` may raise an error meanwhile.

    Raises:
        JobDefinitionError: if there are too few.
    """

    def read() -> Facts:
        facts = session_facts(session, job=job)
        return replace(facts, settles_in=0.0) if promised_slots.of(job) else facts

    _check_resident(plan, await_slots(read, needed_slots(plan), check=check))


def session_facts(
    session: SparkSession, batch: bool = False, job: object = None, again: bool = False
) -> Facts:
    """Return the current facts about a session, for a job that is not running.

    ``again``: the job has had its slots before, and has lost some. Then the session's executors
    have all registered. Slots that are promised to other jobs count as free unless tasks run in
    them, because these jobs may have lost slots as well.
    """
    context = session.sparkContext
    spark = context._jsc.sc()
    slots = _slots(spark)
    local = not has_executors(session)
    others = 0 if again else promised_slots.to_others(job)
    return Facts(
        local=local,
        dynamic=not local and context.getConf().get(_DYNAMIC, "false") == "true",
        slots=slots,
        free=max(0, slots - max(_running(spark), others)),
        batch=batch,
        settles_in=0.0 if local or again else _settles_in(context),
        driver="" if slots else _driver(context),
    )


def slots_for(session: SparkSession, job: object) -> int:
    """Return how many slots a running job could have: its own and the free ones."""
    spark = session.sparkContext._jsc.sc()
    others = max(_running(spark) - promised_slots.of(job), promised_slots.to_others(job))
    return max(0, _slots(spark) - others)


def _driver(context: SparkContext) -> str:
    conf = context._conf
    return f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"


def _slots(spark: Any) -> int:
    """Return the limit to which Spark itself compares the number of tasks of a barrier stage."""
    profile = spark.resourceProfileManager().defaultResourceProfile()
    return int(spark.maxNumConcurrentTasks(profile))


def _running(spark: Any) -> int:
    """Return the number of running tasks; Spark's status tracker is up to ten seconds behind."""
    counts = spark.taskScheduler().runningTasksByExecutors().valuesIterator()
    total = 0
    while counts.hasNext():
        total += counts.next()
    return total


def _settles_in(context: SparkContext) -> float:
    """Return the remaining wait, counted from the session's first request for slots.

    Counting from the start of the session would be too early: on YARN the application master starts
    after it.
    """
    asked = _asked.setdefault(context, time.monotonic())
    allowed = context._jsc.sc().conf().getTimeAsMs(_REGISTERING, _REGISTERING_DEFAULT)
    return float(asked + allowed / _MS - time.monotonic())


def _no_check() -> None:
    """Do nothing."""


def await_slots(
    read: Callable[[], Facts],
    needed: int,
    patience: float = _PATIENCE,
    check: Callable[[], None] = _no_check,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Facts:
    """Return the facts as soon as there are enough slots, or no more are to be expected.

    Executors of a new session may still be starting, and ending tasks take a moment to end.

    ``patience``: how long to wait, in seconds; ``check`` may raise an error meanwhile.
    """
    end = clock() + patience
    while True:
        check()
        facts = read()
        patient = clock() < end and (not facts.local or facts.slots >= needed)
        if facts.free >= needed or facts.dynamic or not (patient or facts.settles_in > 0):
            return facts
        sleep(_LOOK)
