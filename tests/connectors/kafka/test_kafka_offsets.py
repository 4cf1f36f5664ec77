"""Who reads which partition, and how much of it in an epoch: pure functions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.datastream.connectors.kafka.offsets import OffsetRange, Split, divide, owner

splits = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 9))
ranges = st.tuples(st.integers(0, 1000), st.integers(0, 500)).map(lambda r: (r[0], r[0] + r[1]))


@given(st.dictionaries(splits, ranges), st.integers(0, 2000))
def test_an_epoch_reads_as_much_as_it_may_and_as_evenly_as_it_can(
    backlog: dict[Split, OffsetRange], limit: int
) -> None:
    found = divide(backlog, limit)
    counts = {split: last - first for split, (first, last) in found.items()}
    assert all(found[split][0] == backlog[split][0] for split in found)
    assert all(found[split][1] <= backlog[split][1] for split in found)
    assert sum(counts.values()) == min(limit, sum(b - a for a, b in backlog.values()))
    cut = [counts.get(s, 0) for s, (a, b) in backlog.items() if counts.get(s, 0) < b - a]
    if cut and counts:
        assert max(cut) - min(cut) <= 1
        assert max(counts.values()) <= max(cut) + 1


@given(st.dictionaries(splits, ranges), st.integers(0, 2000))
def test_it_does_not_depend_on_the_order(backlog: dict[Split, OffsetRange], limit: int) -> None:
    assert divide(dict(reversed(backlog.items())), limit) == divide(backlog, limit)


@given(st.text(), st.integers(1, 20), st.integers(1, 60))
def test_the_partitions_of_a_topic_go_round_the_subtasks(
    topic: str, parallelism: int, partitions: int
) -> None:
    counts = [0] * parallelism
    for number in range(partitions):
        counts[owner((topic, number), parallelism)] += 1
    assert max(counts) - min(counts) <= 1
