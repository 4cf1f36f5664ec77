"""Every assigner, trigger and kind of function, against a model that keeps all records.

The input is cut into epochs at random. Subtasks move between workers, tasks are run twice, the job
goes back to a checkpoint, and is restarted with another parallelism, all at random places; what
every epoch gives must be what the model gives.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, WatermarkStrategy
from holdfast.common.options.recovery import PICKLED_STATE
from holdfast.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    WindowedStream,
    WindowFunction,
)
from holdfast.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    Trigger,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource
from tests.conformance.saved_state import sizes
from tests.conformance.window_model import (
    Continuous,
    Counting,
    Delta,
    Fired,
    Never,
    Record,
    Span,
    TriggerModel,
    Windows,
    watermarks,
)
from tests.lives import Life, live, lives

LATE = OutputTag("late")


Epochs = list[list[Record]]


# What is tried: each with what the model makes of it.


@dataclass(frozen=True)
class Assigner:
    name: str
    real: WindowAssigner[Any, Any]
    spans: Callable[[Record], list[Span]]
    merging: bool = False

    def __repr__(self) -> str:
        return self.name


def aligned(size: int, slide: int, offset: int, record: Record) -> list[Span]:
    """All windows that have the timestamp in them, by looking at every possible start."""
    time = record[1]
    starts = range(time, time - size, -1)
    return [(start, start + size) for start in starts if (start - offset) % slide == 0]


ASSIGNERS = [
    Assigner("tumbling", TumblingEventTimeWindows.of(10), partial(aligned, 10, 10, 0)),
    Assigner("tumbling, moved", TumblingEventTimeWindows.of(7, 3), partial(aligned, 7, 7, 3)),
    Assigner("sliding", SlidingEventTimeWindows.of(10, 4), partial(aligned, 10, 4, 0)),
    Assigner("sliding, moved", SlidingEventTimeWindows.of(9, 3, 1), partial(aligned, 9, 3, 1)),
    Assigner("with gaps", SlidingEventTimeWindows.of(3, 8), partial(aligned, 3, 8, 0)),
    Assigner(
        "sessions",
        EventTimeSessionWindows.with_gap(5),
        lambda record: [(record[1], record[1] + 5)],
        merging=True,
    ),
    Assigner(
        "dynamic sessions",
        EventTimeSessionWindows.with_dynamic_gap(lambda record: record[2] % 9 + 1),
        lambda record: [(record[1], record[1] + record[2] % 9 + 1)],
        merging=True,
    ),
]


class DerivedTrigger(EventTimeTrigger[Any]):
    """Takes the general way, for it might do anything."""


@dataclass(frozen=True)
class Triggering:
    name: str
    real: Trigger[Any, Any] | None
    model: Callable[[], TriggerModel] = TriggerModel
    purging: bool = False

    def __repr__(self) -> str:
        return self.name


def far(old: Any, new: Any) -> float:
    return float(abs(old[2] - new[2]))


TRIGGERS = [
    Triggering("default", None),
    Triggering("event time", EventTimeTrigger.create()),
    Triggering("general", DerivedTrigger()),
    Triggering("purging", PurgingTrigger.of(EventTimeTrigger()), purging=True),
    Triggering("continuous", ContinuousEventTimeTrigger.of(4), partial(Continuous, 4)),
    Triggering("count", CountTrigger.of(2), partial(Counting, 2)),
    Triggering(
        "purging count", PurgingTrigger.of(CountTrigger.of(3)), partial(Counting, 3), purging=True
    ),
    Triggering(
        "purging continuous",
        PurgingTrigger.of(ContinuousEventTimeTrigger.of(3)),
        partial(Continuous, 3),
        purging=True,
    ),
    Triggering("delta", DeltaTrigger.of(5, far), partial(Delta, 5)),
    Triggering("never", NeverTrigger(), Never),
]


@dataclass(frozen=True)
class Evicting:
    name: str
    real: Evictor[Any, Any] | None
    model: Callable[[list[Record]], list[Record]] | None = None
    after: bool = False

    def __repr__(self) -> str:
        return self.name


def newest(records: list[Record]) -> list[Record]:
    last = max(record[1] for record in records)
    return [record for record in records if record[1] > last - 6]


def close(records: list[Record]) -> list[Record]:
    return [record for record in records if abs(record[2] - records[-1][2]) < 9]


EVICTORS = [
    Evicting("none", None),
    Evicting("count", CountEvictor.of(2), lambda records: records[-2:]),
    Evicting("count after", CountEvictor.of(1, True), lambda records: records[-1:], after=True),
    Evicting("time", TimeEvictor.of(6), newest),
    Evicting("delta", DeltaEvictor.of(9, far), close),
]


class Collected(AggregateFunction):
    """An accumulator that is changed in place, and given away as it is."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Record, accumulator: list[int]) -> list[int]:
        accumulator.append(value[2])
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


class Sum(ReduceFunction):
    def reduce(self, value1: Record, value2: Record) -> Record:
        return value1[0], max(value1[1], value2[1]), value1[2] + value2[2]


class Described(ProcessWindowFunction[Any, Any, str, Any]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        yield key, (context.window().start, context.window().end), *elements


class Applied(WindowFunction[Any, Any, str, Any]):
    def apply(self, key: str, window: Any, inputs: Iterable[Any]) -> list[Any]:
        return [(key, (window.start, window.end), *inputs)]


@dataclass(frozen=True)
class Doing:
    """A kind of function; what it gives, brought into the form of what ``expected`` gives."""

    name: str
    apply: Callable[[WindowedStream], DataStream]
    observed: Callable[[Any], Any]
    expected: Callable[[Fired], Any]

    def __repr__(self) -> str:
        return self.name


def ordered(fired: Fired) -> Any:
    return fired.key, fired.span, sorted(fired.values)


def totalled(fired: Fired) -> Any:
    return fired.key, fired.span, sum(fired.values)


FUNCTIONS = [
    Doing(
        "process",
        lambda windows: windows.process(Described()),
        lambda result: (*result[:2], sorted(record[2] for record in result[2:])),
        ordered,
    ),
    Doing(
        "apply",
        lambda windows: windows.apply(Applied()),
        lambda result: (*result[:2], sorted(record[2] for record in result[2:])),
        ordered,
    ),
    Doing(
        "reduce",
        lambda windows: windows.reduce(Sum()),
        lambda result: (result[0], result[2]),
        lambda fired: (fired.key, sum(fired.values)),
    ),
    Doing(
        "reduce and process",
        lambda windows: windows.reduce(Sum().reduce, Described()),
        lambda result: (*result[:2], result[2][2]),
        totalled,
    ),
    Doing(
        "aggregate",
        lambda windows: windows.aggregate(Collected()),
        sorted,
        lambda fired: sorted(fired.values),
    ),
    Doing(
        "aggregate and apply",
        lambda windows: windows.aggregate(Collected(), Applied()),
        lambda result: (*result[:2], sorted(result[2])),
        ordered,
    ),
]


@dataclass(frozen=True)
class Case:
    assigner: Assigner
    trigger: Triggering
    evictor: Evicting
    function: Doing
    lateness: int
    bound: int
    #: whether changes in place are detected: states are then used in another way
    checks: bool

    @property
    def is_allowed(self) -> bool:
        mergeable = self.trigger.real is None or self.trigger.real.can_merge()
        return mergeable or not self.assigner.merging

    def model(self) -> Windows:
        return Windows(
            self.assigner.spans,
            self.trigger.model,
            self.lateness,
            self.assigner.merging,
            self.trigger.purging,
            self.evictor.model,
            self.evictor.after,
        )

    def expected(self, epochs: Epochs) -> list[Counter[Any]]:
        """What each epoch gives: results with their timestamps, and late records."""
        model = self.model()
        given = []
        for records, watermark in zip(epochs, watermarks(epochs, self.bound), strict=True):
            fired, late = model.epoch(records, watermark)
            results = [(f.span[1] - 1, self.function.expected(f)) for f in fired]
            given.append(Counter(map(repr, [*results, *((r[1], r) for r in late)])))
        return given

    def job(
        self,
        epochs: Epochs,
        parallelism: int,
        restore: str | None = None,
        backend: str = "hashmap",
    ) -> DataStream:
        script = [element for epoch in epochs for element in (*epoch, EndOfEpoch())]
        configuration = _configuration(restore)
        configuration.set_string("state.backend.type", backend)
        configuration.set_string("holdfast.state.check-mutations", str(self.checks).lower())
        env = StreamExecutionEnvironment(configuration).set_parallelism(parallelism)
        return self.job_in(env, script)

    def job_in(self, env: StreamExecutionEnvironment, script: list[Any]) -> DataStream:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(self.bound)
        strategy = strategy.with_timestamp_assigner(lambda record, _: record[1])
        records = env.from_source(ScriptedSource(script), strategy).uid("source")
        windows = records.key_by(lambda record: record[0]).window(self.assigner.real)
        windows.allowed_lateness(self.lateness).side_output_late_data(LATE)
        if self.trigger.real is not None:
            windows.trigger(self.trigger.real)
        if self.evictor.real is not None:
            windows.evictor(self.evictor.real)
        results = self.function.apply(windows).uid("windows")
        late = results.get_side_output(LATE).process(Stamped(None))
        return results.process(Stamped(self.function.observed)).union(late)


class Stamped(ProcessFunction):
    """Gives each record with its timestamp."""

    def __init__(self, observed: Callable[[Any], Any] | None) -> None:
        self._observed = observed

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield ctx.timestamp(), self._observed(value) if self._observed else value


def _configuration(restore: str | None) -> Configuration:
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.interval", "1 h")
    if restore is not None:
        configuration.set_string("execution.savepoint.path", restore)
        configuration.set_string(str(PICKLED_STATE), "true")  # whole records have no type
    return configuration


records = st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.integers(0, 20))


@st.composite
def inputs(draw: st.DrawFn) -> Epochs:
    """Records by epoch; time goes on from epoch to epoch, with some that come much too late."""
    epochs = []
    for number in range(draw(st.integers(1, 7))):
        epoch = draw(st.lists(records, max_size=8))
        epochs.append([(key, time // 2 + 12 * number, value) for key, time, value in epoch])
    return epochs


cases = st.builds(
    Case,
    st.sampled_from(ASSIGNERS),
    st.sampled_from(TRIGGERS),
    st.sampled_from(EVICTORS),
    st.sampled_from(FUNCTIONS),
    st.sampled_from([0, 0, 6, 30]),
    st.sampled_from([0, 3, 15]),
    st.booleans(),
).filter(lambda case: case.is_allowed)


def run_all(
    run: LocalExecutor,
    left: int,
    rerun: bool = False,
    kill: bool = False,
    checkpoint: bool = False,
) -> list[Counter[Any]]:
    """Run so many epochs; what each of them gave."""
    given = []
    for _ in range(left):
        before = len(run.records)
        run.epoch(rerun=rerun, kill=kill, checkpoint=checkpoint)
        given.append(Counter(map(repr, run.records[before:])))
    return given


@settings(max_examples=150, deadline=None)
@given(
    case=cases,
    epochs=inputs(),
    parallelism=st.integers(1, 3),
    workers=st.integers(1, 3),
    disturbance=st.sampled_from(["none", "rerun", "kill"]),
)
def test_every_epoch_gives_what_the_model_gives(
    case: Case, epochs: Epochs, parallelism: int, workers: int, disturbance: str
) -> None:
    with LocalExecutor(case.job(epochs, parallelism), workers=workers, seed=1) as run:
        given = run_all(run, len(epochs), disturbance == "rerun", disturbance == "kill")
    assert given == case.expected(epochs)


@settings(max_examples=40, deadline=None)
@given(case=cases, epochs=inputs(), workers=st.integers(1, 2), data=st.data())
def test_a_job_that_goes_back_to_a_checkpoint(
    case: Case, epochs: Epochs, workers: int, data: st.DataObject
) -> None:
    last = len(epochs) - 1
    kept = data.draw(st.integers(0, last), label="epoch with a checkpoint")
    lost = data.draw(st.integers(kept, last), label="last epoch before the failure")
    with LocalExecutor(case.job(epochs, 2), workers=workers) as run:
        given = run_all(run, kept)
        given += run_all(run, 1, checkpoint=True)
        run_all(run, lost - kept)
        run.recover()
        given += run_all(run, last - kept)
    assert given == case.expected(epochs)


@settings(max_examples=40, deadline=None)
@given(
    case=cases,
    epochs=inputs(),
    parallelism=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    data=st.data(),
)
def test_a_job_that_goes_on_with_another_parallelism(
    case: Case, epochs: Epochs, parallelism: tuple[int, int], data: st.DataObject
) -> None:
    last = len(epochs) - 1
    cut = data.draw(st.integers(0, last), label="epoch with the savepoint")
    before, after = parallelism
    with tempfile.TemporaryDirectory() as directory:
        with LocalExecutor(case.job(epochs, before)) as run:
            given = run_all(run, cut)
            path = run.savepoint(directory)
            given.append(Counter(map(repr, run.records[sum(c.total() for c in given) :])))
        with LocalExecutor(case.job(epochs, after, restore=path)) as run:
            given += run_all(run, last - cut)
    assert given == case.expected(epochs)


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    case=cases,
    epochs=inputs(),
    parallelism=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    backends=st.sampled_from(
        [("rocksdb", "rocksdb"), ("hashmap", "rocksdb"), ("rocksdb", "hashmap")]
    ),
    data=st.data(),
)
def test_on_rocksdb_and_from_one_backend_to_the_other(
    case: Case,
    epochs: Epochs,
    parallelism: tuple[int, int],
    backends: tuple[str, str],
    data: st.DataObject,
) -> None:
    last = len(epochs) - 1
    cut = data.draw(st.integers(0, last), label="epoch with the savepoint")
    with tempfile.TemporaryDirectory() as directory:
        job = case.job(epochs, parallelism[0], backend=backends[0])
        with LocalExecutor(job, workers=2, seed=1) as run:
            given = run_all(run, cut)
            path = run.savepoint(directory)
            given.append(Counter(map(repr, run.records[sum(c.total() for c in given) :])))
        job = case.job(epochs, parallelism[1], restore=path, backend=backends[1])
        with LocalExecutor(job, workers=2) as run:
            run_all(run, (last - cut) // 2)
            run.recover()
            given += run_all(run, last - cut)
    assert given == case.expected(epochs)


#: gaps are odd, so that among even timestamps no session ends where a record may still come
WITH_ODD_GAPS = [
    *ASSIGNERS[:6],
    Assigner(
        "odd dynamic sessions",
        EventTimeSessionWindows.with_dynamic_gap(lambda record: record[2] // 2 * 2 + 1),
        lambda record: [(record[1], record[1] + record[2] // 2 * 2 + 1)],
        merging=True,
    ),
]
#: those that do not fire in between by event time, with what is there by then
PATIENT = [trigger for trigger in TRIGGERS if "continuous" not in trigger.name]


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        Case,
        st.sampled_from(WITH_ODD_GAPS),
        st.sampled_from(PATIENT),
        st.sampled_from(EVICTORS),
        st.sampled_from(FUNCTIONS),
        st.sampled_from([0, 6]),
        st.just(0),
    ).filter(lambda case: case.is_allowed),
    st.lists(records, max_size=30),
    lives(st.integers(1, 12)),
)
def test_the_result_does_not_depend_on_how_the_input_is_cut(
    case: Case, taken: list[Record], life: Life
) -> None:
    """A bounded input without late records, in epochs of any size, through any life."""
    taken = [(key, 2 * time, value) for key, time, value in taken]
    case = replace(case, bound=disorder(taken))
    assert (
        Counter(map(repr, live(lambda env: case.job_in(env, taken), life)))
        == (case.expected([taken])[0])
    )


def disorder(taken: list[Record]) -> int:
    """How far behind another one that came before it a record is."""
    times = [record[1] for record in taken]
    return max(
        (top - time for top, time in zip(accumulate(times, max), times, strict=True)), default=0
    )


@settings(max_examples=40, deadline=None)
@given(case=cases, epochs=inputs(), workers=st.integers(1, 2))
def test_the_state_is_that_of_the_windows_that_are_there(
    case: Case, epochs: Epochs, workers: int
) -> None:
    model = case.model()
    with LocalExecutor(case.job(epochs, 2), workers=workers) as run:
        for taken, watermark in zip(epochs, watermarks(epochs, case.bound), strict=True):
            run.epoch()
            model.epoch(taken, watermark)
            found = sizes(run, "windows")
            assert found["\0window-contents"] == sum(bool(w.records) for w in model.live)
            keys = {window.key for window in model.live}
            assert found["\0merging-windows"] == len(keys) * case.assigner.merging
        assert sizes(run, "windows") == Counter(), "nothing is left of windows that are over"


@pytest.mark.parametrize("assigner", ASSIGNERS, ids=repr)
@pytest.mark.parametrize("to_general", [True, False])
@settings(max_examples=12, deadline=None)
@given(epochs=inputs(), lateness=st.sampled_from([0, 8]), data=st.data())
def test_the_special_and_the_general_way_have_the_same_state(
    assigner: Assigner, to_general: bool, epochs: Epochs, lateness: int, data: st.DataObject
) -> None:
    """A job whose trigger is replaced by one that does the same goes on with its windows."""
    usual, general = TRIGGERS[0], TRIGGERS[2]
    first, second = (usual, general) if to_general else (general, usual)
    case = Case(assigner, first, EVICTORS[0], FUNCTIONS[0], lateness, bound=3, checks=True)
    last = len(epochs) - 1
    cut = data.draw(st.integers(0, last), label="epoch with the savepoint")
    with tempfile.TemporaryDirectory() as directory:
        with LocalExecutor(case.job(epochs, 2)) as run:
            given = run_all(run, cut)
            path = run.savepoint(directory)
            given.append(Counter(map(repr, run.records[sum(c.total() for c in given) :])))
        with LocalExecutor(replace(case, trigger=second).job(epochs, 2, restore=path)) as run:
            given += run_all(run, last - cut)
            left = sizes(run, "windows")
    assert given == case.expected(epochs)
    assert left == Counter()
