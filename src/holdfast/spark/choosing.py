"""Which engine a job runs on: `choose_engine` decides, from what is known of the session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from holdfast.common.engine_options import ENGINE, EngineSetting
from holdfast.datastream.engines import needed_slots, not_for_resident, why_epochs, writes_rows
from holdfast.driver.engine import EngineChoice
from holdfast.errors import JobDefinitionError
from holdfast.plan.model import Plan
from holdfast.printable import get_logger
from holdfast.spark.promised_slots import promised_slots
from holdfast.spark.session import has_executors

__all__ = [
    "Facts",
    "await_slots",
    "check_width",
    "choose_engine",
    "engine_for",
    "session_facts",
    "slots_for",
]

_logger = get_logger(__name__)

_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
#: for so long Spark itself waits for executors before it runs the first tasks
_REGISTERING: Final = "spark.scheduler.maxRegisteredResourcesWaitingTime"
_REGISTERING_DEFAULT: Final = "30s"
#: seconds in which the last tasks of another job may end, or a late executor come
_PATIENCE: Final = 3.0
_LOOK: Final = 0.1
_MS: Final = 1000


@dataclass(frozen=True)
class Facts:
    """What the choice of an engine depends on, besides the plan.

    Attributes:
        local: tasks run in the driver's JVM, and no executor is to be waited for.
        dynamic: Spark adds and removes executors as it likes.
        slots: how many tasks can run at once in the session.
        free: how many of them would find a slot now.
        batch: the job runs in batch mode.
        settles_in: seconds in which executors may still register, after the session's start.
    """

    local: bool
    dynamic: bool
    slots: int
    free: int
    batch: bool = False
    settles_in: float = 0.0


def choose_engine(setting: EngineSetting, plan: Plan, facts: Facts) -> EngineChoice:
    """Return the engine that a job runs on, and why.

    Raises:
        JobDefinitionError: when the resident engine was asked for, and cannot run the job.
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
    subtasks = "1 subtask" if level.parallelism == 1 else f"{level.parallelism} subtasks"
    also = ", and Spark needs a slot to write for its DataFrame sinks" if writes_rows(plan) else ""
    slots = needed_slots(plan)
    return (
        f"it needs {slots} task slot{'' if slots == 1 else 's'}: its widest operator "
        f"('{widest}') has {subtasks}{also}"
    )


def _found(facts: Facts) -> str:
    slots = "1 task slot" if facts.slots == 1 else f"{facts.slots} task slots"
    return f"the session has {slots}, {facts.free} of them free"


def _more_slots(plan: Plan, facts: Facts) -> str:
    slots = needed_slots(plan) + facts.slots - facts.free
    cores = f"local[{slots}]" if facts.local else f"spark.cores.max={slots}, or more executors"
    return (
        f"start the session with more cores ({cores}), lower the parallelism, or set "
        f"'{ENGINE}' to epochs"
    )


def engine_for(
    session: SparkSession, setting: EngineSetting, batch: bool, plan: Plan
) -> EngineChoice:
    """Choose the engine of a job that starts, and tell the log.

    Raises:
        JobDefinitionError: when the resident engine was asked for, and cannot run the job.
    """

    def read() -> Facts:
        return session_facts(session, batch)

    decided = setting is EngineSetting.EPOCHS or why_epochs(plan, batch) is not None
    facts = read() if decided else await_slots(read, needed_slots(plan))
    choice = choose_engine(setting, plan, facts)
    log = _logger.warning if choice.surprising else _logger.info
    log("job '%s' runs on the engine '%s': %s", plan.name, choice.name, choice.reason)
    return choice


def check_width(session: SparkSession, job: object, plan: Plan, check: Callable[[], None]) -> None:
    """Check that a resident job which has been stopped finds slots for another plan.

    ``check`` may raise an error meanwhile.

    Raises:
        JobDefinitionError: when there are too few.
    """
    facts = await_slots(lambda: session_facts(session, job=job), needed_slots(plan), check=check)
    _check_resident(plan, facts)


def session_facts(
    session: SparkSession, batch: bool = False, job: object = None, again: bool = False
) -> Facts:
    """Return what a session has at this moment, for a job that does not run.

    ``again``: the job had its slots already, and has lost some. Then the executors of the session
    have long come; and what other jobs count on is free unless they run, for they may have lost
    slots as well.
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
        settles_in=0.0 if local or again else _settles_in(spark),
    )


def slots_for(session: SparkSession, job: object) -> int:
    """Return how many slots a job that runs could have: its own, and those that are free."""
    spark = session.sparkContext._jsc.sc()
    others = max(_running(spark) - promised_slots.of(job), promised_slots.to_others(job))
    return max(0, _slots(spark) - others)


def _slots(spark: Any) -> int:
    """The number that Spark itself compares the tasks of a barrier stage with."""
    profile = spark.resourceProfileManager().defaultResourceProfile()
    return int(spark.maxNumConcurrentTasks(profile))


def _running(spark: Any) -> int:
    """The tasks that run now; the status tracker hears of them up to ten seconds later."""
    counts = spark.taskScheduler().runningTasksByExecutors().valuesIterator()
    total = 0
    while counts.hasNext():
        total += counts.next()
    return total


def _settles_in(spark: Any) -> float:
    allowed = spark.conf().getTimeAsMs(_REGISTERING, _REGISTERING_DEFAULT)
    return float(spark.startTime() + allowed) / _MS - time.time()


def _no_check() -> None:
    """Nothing ends the wait."""


def await_slots(
    read: Callable[[], Facts],
    needed: int,
    patience: float = _PATIENCE,
    check: Callable[[], None] = _no_check,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Facts:
    """Return the facts as soon as there are slots enough, or none are to be expected any more.

    Executors of a new session are still on their way, and what ends takes a moment to end.

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
