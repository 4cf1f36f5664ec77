"""NEXMark: the generator, the source, and every query against DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.nexmark.columns import COLUMN_QUERIES
from benchmarks.nexmark.columns.top_bids import ranks
from benchmarks.nexmark.data import DataSet, make
from benchmarks.nexmark.events import AUCTION, BID, KIND, PERSON, TIME, Auction, Bid, Person
from benchmarks.nexmark.generator import BASE_TIME, Generator
from benchmarks.nexmark.program import program
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.queries.rankings import rank as rank_by_record
from benchmarks.nexmark.reference import Reference, final
from benchmarks.nexmark.source import NexmarkSource
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.testing import LocalExecutor
from tests.lives import CHECKPOINT, CRASH, EPOCH, Life, live

#: 30 seconds of event time; events come up to 2.5 seconds after others of a later time
DATA = DataSet(events=6000, files=3, disorder=500, rate=200)
#: as many, each at a time of its own, and in its order
IN_ORDER = DataSet(events=6000, files=2, rate=200)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nexmark")


@pytest.fixture(scope="module")
def data(root: Path) -> Path:
    return make(root, DATA)


@pytest.fixture(scope="module")
def reference(data: Path) -> Reference:
    return Reference(data)


# --- The generator


def test_an_event_comes_from_its_number() -> None:
    events = list(Generator(7).events(0, 3000))
    assert list(Generator(7).events(1234, 1300)) == events[1234:1300]
    assert list(Generator(8).events(0, 3000)) != events


def test_proportions_are_those_of_the_original() -> None:
    events = list(Generator().events(0, 50_000))
    kinds = Counter(event[KIND] for event in events)
    assert kinds == {PERSON: 1000, AUCTION: 3000, BID: 46_000}
    bids = [event for event in events if event[KIND] == BID]
    hot = [bid for bid in bids if (bid[Bid.AUCTION] - 1000) % 100 == 0]
    assert len(hot) / len(bids) == pytest.approx(1 / 2 + 1 / 2 / 100, abs=0.02)
    hot = [bid for bid in bids if (bid[Bid.BIDDER] - 1001) % 100 == 0]
    assert len(hot) / len(bids) == pytest.approx(3 / 4 + 1 / 4 / 100, abs=0.02)
    auctions = [event for event in events if event[KIND] == AUCTION]
    assert [auction[Auction.ID] for auction in auctions] == list(range(1000, 4000))
    assert {auction[Auction.CATEGORY] for auction in auctions} == set(range(10, 15))
    people = [event for event in events if event[KIND] == PERSON]
    assert [person[Person.ID] for person in people] == list(range(1000, 2000))
    length = sum(len(bid[Bid.EXTRA]) for bid in bids) / len(bids)
    assert length == pytest.approx(68, abs=1)


def test_prices_are_of_all_orders_of_magnitude() -> None:
    prices = [event[Bid.PRICE] for event in Generator().events(0, 20_000) if event[KIND] == BID]
    digits = Counter(len(str(price)) for price in prices)
    assert sorted(digits) == list(range(3, 9))
    assert digits[6] / len(prices) == pytest.approx(1 / 6, abs=0.02)


def test_times_are_shuffled_within_groups() -> None:
    times = [event[TIME] - BASE_TIME for event in Generator(disorder=100).events(0, 1000)]
    assert times != sorted(times)
    ordered = [event[TIME] - BASE_TIME for event in Generator().events(0, 1000)]
    assert ordered == [number // 10 for number in range(1000)]
    for group in range(0, 1000, 100):
        assert sorted(times[group : group + 100]) == ordered[group : group + 100]


# --- The files, and the source that reads them


def test_the_source_reads_what_was_generated_whatever_the_cuts(data: Path) -> None:
    chance = random.Random(3)
    events = []
    for subtask in range(2):
        reader = NexmarkSource(data).create_reader(subtask, 2)
        while not reader.finished:
            for batch in reader.read(chance.randrange(1, 900)):
                events += batch
    assert sorted(events) == sorted(DATA.generator().events(0, DATA.events))


def test_the_source_goes_on_from_its_positions_with_other_subtasks(data: Path) -> None:
    source = NexmarkSource(data)
    readers = [source.create_reader(subtask, 2) for subtask in range(2)]
    events = [event for reader in readers for batch in reader.read(777) for event in batch]
    again = source.create_reader(0, 2)
    assert [event for batch in again.read(777) for event in batch] == events[:777]
    positions = source.redistribute([reader.position() for reader in readers], 3)
    for subtask, position in enumerate(positions):
        reader = source.create_reader(subtask, 3)
        reader.restore(position)
        events += [event for batch in reader.read(DATA.events) for event in batch]
        assert reader.finished
    assert sorted(events) == sorted(DATA.generator().events(0, DATA.events))


# --- The queries


def some_lives(seed: str) -> list[Life]:
    """One life of each parallelism, with crashes and changes of parallelism on the way."""
    chance = random.Random(seed)
    return [
        Life(
            parallelism,
            workers=chance.randrange(1, 3),
            quota=chance.randrange(300, 1500) * 3 // parallelism,
            seed=chance.randrange(100),
            events=(
                chance.choice([EPOCH, CHECKPOINT]),
                CHECKPOINT,
                EPOCH,
                CRASH,
                EPOCH,
                chance.choice([1, 2, 3, CHECKPOINT]),
            ),
        )
        for parallelism in (1, 2, 3)
    ]


@pytest.mark.parametrize("query", [name for name in QUERIES if name != "q12"])
def test_query_gives_what_duckdb_gives(query: str, data: Path, reference: Reference) -> None:
    expected = reference(query)
    assert expected
    for life in some_lives(query):
        records = live(lambda env: program(env, query, data), life)
        assert final(query, records) == expected, life


@pytest.mark.parametrize("query", [name for name in COLUMN_QUERIES if name != "q12"])
def test_query_in_columns_gives_what_duckdb_gives(
    query: str, data: Path, reference: Reference
) -> None:
    expected = reference(query)
    for life in some_lives(query):
        records = live(lambda env: program(env, query, data, in_columns=True).map(tuple), life)
        assert final(query, records) == expected, life


def test_bids_of_one_price_have_the_order_that_they_have_by_record() -> None:
    chance = random.Random(19)
    bids = [
        (BID, *(chance.randrange(most) for most in (2, 1, 2, 3)), *chance.choices("ab", k=3))
        for _ in range(400)
    ]
    names = ("time", "auction", "bidder", "price", "channel", "url", "extra")
    rows = pa.record_batch(dict(zip(names, list(zip(*bids, strict=True))[1:], strict=True)))
    in_order = sorted(zip(ranks(rows).tolist(), bids, strict=True))
    assert [bid for _, bid in in_order] == sorted(bids, key=rank_by_record)


@pytest.mark.parametrize("in_columns", [False, True])
def test_query_12_counts_by_the_time_of_arrival(root: Path, in_columns: bool) -> None:
    data = make(root, IN_ORDER)
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    counts = program(env, "q12", data, endless=True, in_columns=in_columns).map(tuple)
    with LocalExecutor(counts, workers=2) as run:
        for epoch in range(5):
            run.epoch(700, kill=epoch == 2)
            run.clock.advance("10s")
        run.epoch(0)
        assert final("q12", run.records) == Reference(data, arriving=700)("q12")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("query", ["q5", "q9"])
def test_query_on_spark(query: str, data: Path, reference: Reference) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    records = program(env, query, data).execute_and_collect()
    assert final(query, records) == reference(query)
