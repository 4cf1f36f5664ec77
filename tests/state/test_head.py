from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.state.format.head import LINEAGE, FileRef, Head, files_to_fold


def run(base: int, deltas: list[int]) -> tuple[list[int], int, int]:
    """Write deltas one after another: the final sizes, the longest head, all bytes written."""
    sizes, longest, written = [base], 1, 0
    for delta in deltas:
        fold = files_to_fold(sizes, delta)
        kept = sizes[: len(sizes) - fold]
        size = delta + sum(sizes[len(kept) :]) if kept else base
        sizes = [*kept, size]
        longest, written = max(longest, len(sizes)), written + size
    return sizes, longest, written


def test_the_first_write_is_a_base() -> None:
    assert files_to_fold([], 10) == 0
    assert Head().since(0) == -1


def test_a_base_is_rewritten_when_the_deltas_have_outgrown_it() -> None:
    assert files_to_fold([1000], 999) == 0
    assert files_to_fold([1000], 1000) == 1
    assert files_to_fold([1000, 600], 400) == 2


def test_a_base_is_rewritten_only_if_a_new_one_would_be_smaller_than_the_deltas() -> None:
    base, delta = 1_000_000, 600_000
    assert files_to_fold([base, delta], delta, live=base // 2) == 2
    assert files_to_fold([base, delta], delta, live=base + 2 * delta) == 0
    assert files_to_fold([base, delta, delta], delta, live=base) == 3


def test_eight_deltas_of_one_size_become_one() -> None:
    base, delta = 100_000_000, 100_000
    assert files_to_fold([base, *[delta] * 6], delta) == 0
    assert files_to_fold([base, *[delta] * 7], delta) == 7
    assert files_to_fold([base, 8 * delta, *[delta] * 7], delta) == 7
    assert files_to_fold([base, *[8 * delta] * 6, *[delta] * 7], delta) == 7
    assert files_to_fold([base, *[8 * delta] * 7, *[delta] * 7], delta) == 14


def test_large_deltas_are_left_as_they_are_until_there_are_many() -> None:
    base, large = 100_000_000, 5_000_000
    assert files_to_fold([base, *[large] * 7], large) == 0
    assert files_to_fold([base, 1000, large, *[100_000] * 7], 100_000) == 7
    assert files_to_fold([4 * base, *[large] * 7], large) == 7
    _, longest, written = run(1000 * base, [large] * 1000)
    assert longest < 60
    assert written < 4 * 1000 * large


def test_small_deltas_count_as_equal_but_do_not_rewrite_a_larger_one() -> None:
    base = 10_000_000
    assert files_to_fold([base, 9000, 10, 5000, 20, 1, 7, 3], 50) == 7
    assert files_to_fold([base, 20_000, *[10] * 6], 10) == 0


@pytest.mark.parametrize(
    ("base", "delta"), [(10**6, 10**3), (10**8, 10**5), (10**9, 10**5), (10**6, 10**6)]
)
def test_heads_stay_short_and_writes_few(base: int, delta: int) -> None:
    count = 10_000
    _, longest, written = run(base, [delta] * count)
    assert longest <= 48
    assert written < 8 * count * delta


@given(st.integers(0, 10**6), st.lists(st.integers(0, 10**6), max_size=200))
def test_heads_are_never_much_larger_than_their_base(base: int, deltas: list[int]) -> None:
    sizes, longest, _ = run(base, deltas)
    assert sum(sizes[1:]) <= max(base, 1)
    assert longest <= 40


def test_extending_a_head() -> None:
    head = Head().extended(FileRef("a.state", 10, -1, 0), "a", 7)
    head = head.extended(FileRef("b.state", 2, 0, 3), "b", 7)
    assert (head.stamp, head.until, head.size) == ("b", 3, 12)
    assert (head.since(0), head.since(1), head.since(2)) == (3, 0, -1)
    folded = head.extended(FileRef("c.state", 3, 0, 4), "c", 7, fold=1)
    assert [file.name for file in folded.files] == ["a.state", "c.state"]
    assert folded.lineage == ("a", "b", "c")


def test_lineage_is_bounded() -> None:
    head = Head()
    for i in range(40):
        head = head.extended(FileRef(f"{i}.state", 1, -1, i), str(i), 7, fold=len(head.files))
    assert head.lineage == tuple(map(str, range(40 - LINEAGE, 40)))


def test_heads_are_small_and_picklable() -> None:
    head = Head((FileRef("a.state", 10, -1, 0),), ("a",))
    data = pickle.dumps(head)
    assert pickle.loads(data) == head
    assert len(data) < 200
