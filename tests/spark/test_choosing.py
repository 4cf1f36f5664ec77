"""Which engine a job runs on, from its setting, its plan and what the session has."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from holdfast.common import Configuration
from holdfast.common.options.engine import EngineSetting, engine_setting
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.dataframe import DataFrameSink
from holdfast.datastream.engines import engine_note, needed_slots
from holdfast.driver.outcome import AbandonedError
from holdfast.errors import JobDefinitionError
from holdfast.plan.model import Plan
from holdfast.spark import engine_choice as choosing
from holdfast.spark.engine_choice import (
    Facts,
    await_slots,
    choose_engine,
    engine_for,
    session_facts,
)
from holdfast.spark.promised_slots import PromisedSlots
from holdfast.spark.session import default_parallelism, has_executors, local_settings
from tests.spark.witness import until

AUTO, RESIDENT, EPOCHS, _ = EngineSetting
ROOMY = Facts(local=True, dynamic=False, slots=64, free=60)
TIGHT = replace(ROOMY, slots=4, free=1)
ON_A_CLUSTER = Facts(local=False, dynamic=False, slots=4, free=4)
ALONE = replace(ON_A_CLUSTER, slots=0, free=0, driver="h1:7079")
CHECK = (
    "if executors start and end, they cannot connect to it: check spark.driver.host, "
    "spark.driver.bindAddress and the firewall; if none starts, the cluster has too little free "
    "memory or too few free cores: check spark.executor.memory and spark.executor.cores"
)


def plan_of(env: StreamExecutionEnvironment, wide: int = 8) -> Plan:
    numbers = env.from_collection([1]).map(abs).name("narrow")
    numbers.key_by(abs).map(abs).name("wide").set_parallelism(wide).print()
    return env._plan("orders")


def plan_with_rows(env: StreamExecutionEnvironment) -> Plan:
    frame: Any = object()  # stands for a DataFrame; planning does not look into it
    env.from_dataframe(frame, "orders").print()
    return env._plan("orders")


def plan_with_a_writer(env: StreamExecutionEnvironment) -> Plan:
    sink = DataFrameSink("parquet", path="out", schema="n long")
    env.from_collection([(1,)]).sink_to(sink).set_parallelism(3)
    return env._plan("orders")


def test_a_job_that_may_choose_is_resident_where_there_is_room(
    env: StreamExecutionEnvironment,
) -> None:
    choice = choose_engine(AUTO, plan_of(env), ROOMY)
    assert (choice.name, choice.surprising) == ("resident", False)
    assert choice.reason == "8 of 64 task slots are its own"


@pytest.mark.parametrize(
    ("facts", "reason", "surprising"),
    [
        (replace(ROOMY, batch=True), "it runs in batch mode", False),
        (
            replace(ON_A_CLUSTER, slots=64, free=64, dynamic=True),
            "the session has spark.dynamicAllocation.enabled",
            True,
        ),
        (
            TIGHT,
            "it needs 8 task slots: its widest operator ('wide') has 8 subtasks; "
            "the session has 4 task slots, 1 of them free",
            True,
        ),
        (
            replace(ROOMY, slots=9, free=0),
            "it needs 8 task slots: its widest operator ('wide') has 8 subtasks; "
            "the session has 9 task slots, 0 of them free; an epoch runs when there is one",
            True,
        ),
        (
            replace(ROOMY, free=7),
            "it needs 8 task slots: its widest operator ('wide') has 8 subtasks; "
            "the session has 64 task slots, 7 of them free",
            True,
        ),
        (
            ALONE,
            "it needs 8 task slots: its widest operator ('wide') has 8 subtasks; no executor has "
            "registered with the driver at 'h1:7079'; an epoch runs when there is one; " + CHECK,
            True,
        ),
    ],
)
def test_or_runs_in_epochs_and_says_why(
    env: StreamExecutionEnvironment, facts: Facts, reason: str, surprising: bool
) -> None:
    choice = choose_engine(AUTO, plan_of(env), facts)
    assert (choice.name, choice.reason, choice.surprising) == ("epochs", reason, surprising)


def test_rows_of_a_dataframe_come_in_epochs(env: StreamExecutionEnvironment) -> None:
    plan = plan_with_rows(env)
    choice = choose_engine(AUTO, plan, ROOMY)
    assert (choice.name, choice.surprising) == ("epochs", False)
    assert "it reads the rows of a Spark DataFrame ('Source: orders')" in choice.reason
    with pytest.raises(JobDefinitionError, match=r"reads the rows.*; set 'holdfast.engine' to au"):
        choose_engine(RESIDENT, plan, ROOMY)


@pytest.mark.parametrize("facts", [ROOMY, TIGHT, replace(ROOMY, batch=True, dynamic=True)])
def test_epochs_are_always_possible(env: StreamExecutionEnvironment, facts: Facts) -> None:
    assert choose_engine(EPOCHS, plan_of(env), facts).name == "epochs"


def test_a_resident_job_may_run_in_batch_mode(env: StreamExecutionEnvironment) -> None:
    assert choose_engine(RESIDENT, plan_of(env), replace(ROOMY, batch=True)).name == "resident"


def test_a_resident_job_without_slots_is_refused_with_all_numbers(
    env: StreamExecutionEnvironment,
) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        choose_engine(RESIDENT, plan_of(env), TIGHT)
    assert str(refused.value) == (
        "job 'orders' cannot run on the resident engine: it needs 8 task slots: its widest "
        "operator ('wide') has 8 subtasks; the session has 4 task slots, 1 of them free; start the "
        "session with more cores (local[11]), lower the parallelism, or set 'holdfast.engine' to "
        "epochs"
    )
    with pytest.raises(JobDefinitionError, match=r"\(spark.cores.max=8, or more executors\)"):
        choose_engine(RESIDENT, plan_of(env), ON_A_CLUSTER)


def test_and_without_executors_it_says_what_to_check(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(JobDefinitionError) as refused:
        choose_engine(RESIDENT, plan_of(env), ALONE)
    assert str(refused.value) == (
        "job 'orders' cannot run on the resident engine: it needs 8 task slots: its widest "
        "operator ('wide') has 8 subtasks; no executor has registered with the driver at "
        f"'h1:7079'; {CHECK}"
    )


@pytest.mark.parametrize("alone", [False, True])
def test_a_job_in_epochs_waits_for_the_first_executor(
    env: StreamExecutionEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    alone: bool,
) -> None:
    """Until none is expected any more: Spark itself would wait without end, and without a word."""
    coming, there = replace(ALONE, settles_in=20.0), replace(ON_A_CLUSTER, free=0)
    seen = iter([coming, coming, *[ALONE if alone else there] * 100])
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(choosing, "session_facts", lambda session, batch: next(seen))
    wait = partial(await_slots, clock=lambda: now, sleep=sleep)
    monkeypatch.setattr(choosing, "await_slots", wait)
    engine_for(cast(SparkSession, None), EPOCHS, False, plan_of(env))
    assert now < 4 if alone else now == pytest.approx(0.2)
    assert [record.getMessage() for record in caplog.records] == (
        [f"job 'orders' waits: no executor has registered with the driver at 'h1:7079'; {CHECK}"]
        if alone
        else []
    )


def test_a_resident_job_is_refused_where_executors_come_and_go(
    env: StreamExecutionEnvironment,
) -> None:
    with pytest.raises(JobDefinitionError, match=r"with spark.dynamicAllocation.enabled=false, or"):
        choose_engine(RESIDENT, plan_of(env, 2), replace(ON_A_CLUSTER, dynamic=True))


def test_a_writer_of_spark_needs_a_slot_besides(env: StreamExecutionEnvironment) -> None:
    plan = plan_with_a_writer(env)
    assert needed_slots(plan) == 4
    choice = choose_engine(AUTO, plan, replace(ROOMY, slots=3, free=3))
    assert "3 subtasks, and Spark needs a slot to write for its DataFrame sinks" in choice.reason


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({}, "resident, if the session has 8 task slots free"),
        ({"execution.runtime-mode": "BATCH"}, "epochs: it runs in batch mode"),
        ({"holdfast.engine": "epochs"}, "epochs, as set by 'holdfast.engine'"),
        (
            {"holdfast.engine": "local"},
            "local, as set by 'holdfast.engine': in this process, without Spark",
        ),
        ({"holdfast.engine": "RESIDENT"}, "resident, as set by 'holdfast.engine': 8 task slots"),
    ],
)
def test_what_is_known_without_a_session(
    env: StreamExecutionEnvironment, settings: dict[str, str], note: str
) -> None:
    assert engine_note(plan_of(env), Configuration(settings)) == note


def test_what_is_known_of_rows_without_a_session(env: StreamExecutionEnvironment) -> None:
    plan = plan_with_rows(env)
    asked = Configuration({"holdfast.engine": "resident"})
    assert "the job cannot start: it reads the rows" in engine_note(plan, asked)
    assert engine_note(plan, Configuration()).startswith("epochs: it reads the rows")
    local = engine_note(plan, Configuration({"holdfast.engine": "local"}))
    assert "the job cannot start: it reads a Spark DataFrame" in local


def test_other_engines_are_refused() -> None:
    assert engine_setting(Configuration()) is AUTO
    message = r"'holdfast.engine': cannot read 'flink' as .*expected one of AUTO, .*, LOCAL"
    with pytest.raises(ValueError, match=message):
        engine_setting(Configuration({"holdfast.engine": "flink"}))


class Waiting:
    """A session whose facts change with each look at it, and a clock that sleep moves."""

    def __init__(self, *facts: Facts) -> None:
        self.now, self.looks, self._facts = 0.0, 0, facts

    def read(self) -> Facts:
        self.looks += 1
        return self._facts[min(self.looks, len(self._facts)) - 1]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, needed: int) -> Facts:
        return await_slots(self.read, needed, clock=lambda: self.now, sleep=self.sleep)


def test_executors_that_are_on_their_way_are_waited_for() -> None:
    coming = replace(ON_A_CLUSTER, slots=0, free=0, settles_in=20.0)
    session = Waiting(coming, coming, ON_A_CLUSTER)
    assert session.wait(4) == ON_A_CLUSTER
    assert session.looks == 3


def test_until_no_more_are_expected() -> None:
    coming, all_there = replace(ON_A_CLUSTER, settles_in=20.0), replace(ON_A_CLUSTER, settles_in=-1)
    session = Waiting(*[coming] * 100, all_there)
    assert session.wait(5) == all_there
    assert session.looks == 101
    late = Waiting(all_there)
    assert late.wait(5) == all_there
    assert 2 < late.now < 4


def test_tasks_that_end_are_waited_for_a_moment() -> None:
    session = Waiting(replace(TIGHT, free=0), TIGHT, replace(TIGHT, free=4))
    assert session.wait(4).free == 4
    busy = Waiting(TIGHT)
    assert busy.wait(4) == TIGHT
    assert 2 < busy.now < 4


def test_a_job_that_has_lost_slots_waits_for_others_as_long_as_it_is_told() -> None:
    session = Waiting(replace(ON_A_CLUSTER, settles_in=-1))
    found = await_slots(session.read, 5, 60.0, clock=lambda: session.now, sleep=session.sleep)
    assert found.free < 5
    assert 59 < session.now < 61


def test_a_wait_for_slots_can_be_given_up() -> None:
    session = Waiting(replace(ON_A_CLUSTER, settles_in=-1))

    def check() -> None:
        if session.now > 5:
            raise AbandonedError("the job is cancelled")

    with pytest.raises(AbandonedError):
        await_slots(session.read, 5, 60.0, check, lambda: session.now, session.sleep)
    assert session.now < 6


class Cluster:
    """Stands for the context of a session whose executors are to come, within so many seconds."""

    def __init__(self, seconds: int) -> None:
        conf = SimpleNamespace(getTimeAsMs=lambda name, default: seconds * 1000)
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf))


def test_executors_have_their_time_from_when_slots_are_first_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long ago the session was started: an application master may start slowly."""
    now = 1000.0
    monkeypatch.setattr(choosing, "time", SimpleNamespace(monotonic=lambda: now))
    first: Any = Cluster(30)
    assert choosing._settles_in(first) == 30
    now += 10
    assert choosing._settles_in(first) == 20
    other: Any = Cluster(60)
    assert choosing._settles_in(other) == 60
    now += 25
    assert choosing._settles_in(first) < 0


@pytest.mark.parametrize("ran", [False, True])
def test_only_a_job_that_never_ran_waits_for_the_executors_of_a_new_session(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch, ran: bool
) -> None:
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise AbandonedError("the job is cancelled")

    facts, promised = replace(TIGHT, settles_in=300.0), PromisedSlots()
    session, job = cast(SparkSession, None), object()
    if ran:
        promised.promise(job, 1)
    monkeypatch.setattr(choosing, "session_facts", lambda session, job: facts)
    monkeypatch.setattr(choosing, "promised_slots", promised)
    with pytest.raises(JobDefinitionError if ran else AbandonedError):
        choosing.check_width(session, job, plan_of(env), look)
    assert looks == (1 if ran else 3)


@pytest.mark.parametrize("facts", [TIGHT, replace(ON_A_CLUSTER, dynamic=True, settles_in=20)])
def test_nothing_is_waited_for_that_will_not_come(facts: Facts) -> None:
    session = Waiting(facts)
    session.wait(8)
    assert session.looks == 1


@pytest.fixture
def busy(spark: Any, tmp_path: Path) -> Iterator[int]:
    """Two tasks that run until the test is over, and no others."""
    # those of a job before may need a moment to end
    until(lambda: session_facts(spark).free == session_facts(spark).slots)
    go_on = tmp_path / "go-on"
    go_on.touch()

    def hold(number: int) -> int:
        import os
        import time

        open(f"{go_on}-{number}", "w").close()
        while os.path.exists(go_on):
            time.sleep(0.01)
        return number

    context = spark.sparkContext
    job = threading.Thread(target=context.parallelize(range(2), 2).map(hold).collect)
    job.start()
    until(lambda: all(Path(f"{go_on}-{number}").exists() for number in range(2)))
    yield 2
    go_on.unlink()
    job.join()


@pytest.mark.spark
def test_the_slots_of_a_session(spark: Any, busy: int) -> None:
    facts = session_facts(spark)
    assert (facts.local, facts.dynamic, facts.settles_in) == (True, False, 0.0)
    assert facts.free == facts.slots - busy


@pytest.mark.spark
def test_the_choice_is_told_once(
    spark: Any, env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    slots = session_facts(spark).slots
    with caplog.at_level(logging.INFO, "holdfast.spark.engine_choice"):
        engine_for(spark, AUTO, False, plan_of(env, 1))
        engine_for(spark, AUTO, False, plan_of(env, slots + 1))
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in told] == ["INFO", "WARNING"]
    assert told[0][1].startswith("job 'orders' runs on the engine 'resident': ")
    assert told[1][1].startswith(f"job 'orders' runs on the engine 'epochs': it needs {slots + 1} ")


@pytest.mark.parametrize(("cores", "slots", "total"), [(2, 1, 12), (2, 40, 42), (16, 16, 40)])
def test_a_local_session_has_slots_to_spare(cores: int, slots: int, total: int) -> None:
    settings = local_settings(cores, slots)
    assert settings["spark.master"] == f"local[{total},4]"
    assert total - slots >= cores


@pytest.mark.spark
def test_slots_to_spare_change_nothing_else(spark: Any) -> None:
    """The session of the tests is made with these settings, for two cores."""
    assert session_facts(spark).slots == 12
    assert default_parallelism(spark) == 2
    assert spark.range(100).rdd.getNumPartitions() == 2
    assert spark.sparkContext.parallelize(range(100)).getNumPartitions() == 2


@pytest.mark.spark
def test_a_job_knows_what_runs_it(spark: Any) -> None:
    settings = Configuration({"holdfast.engine": "epochs"})
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(1)
    env.from_collection([1]).print()
    client: Any = env.execute_async("orders")
    client.get_job_execution_result().result()
    history = client._job.history
    assert (history.engine, history.engine_reason) == ("epochs", "'holdfast.engine' says so")
    assert history.began.spark["spark.app.id"] == spark.sparkContext.applicationId
    assert (history.began.spark_page or None) == spark.sparkContext.uiWebUrl


@pytest.mark.spark
def test_a_job_that_cannot_be_resident_does_not_start(spark: Any) -> None:
    slots = session_facts(spark).slots
    settings = Configuration({"holdfast.engine": "resident"})
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    env.from_collection([1]).rebalance().map(abs).set_parallelism(slots + 1).print()
    with pytest.raises(JobDefinitionError, match=f"it needs {slots + 1} task slots"):
        env.execute("orders")


def test_a_wrong_setting_is_found_before_there_is_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.engines.spark.get_session", None)
    settings = Configuration({"holdfast.engine": "flink"})
    env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(1)
    env.from_collection([1]).print()
    with pytest.raises(ValueError, match=r"'holdfast.engine': cannot read 'flink'"):
        env.execute("orders")


@pytest.mark.parametrize(
    ("master", "waits"),
    [("local", False), ("local[4]", False), ("local-cluster[2,1,1024]", True), ("yarn", True)],
)
def test_executors_are_waited_for_where_there_are_some(master: str, waits: bool) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert has_executors(session) is waits
