"""Which number a slot gets: one that its host had before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.driver.slots.numbers import assign_numbers


def test_in_the_first_attempt_tasks_keep_their_numbers() -> None:
    assert assign_numbers({0: "a", 1: "b", 2: "a"}, ()) == {0: 0, 1: 1, 2: 2}


def test_hosts_get_their_numbers_back_whatever_tasks_spark_gives_them() -> None:
    assert assign_numbers({0: "b", 1: "a", 2: "c"}, ("a", "b", "c")) == {0: 1, 1: 0, 2: 2}
    assert assign_numbers({0: "b", 1: "b", 2: "a"}, ("a", "b", "b")) == {0: 1, 1: 2, 2: 0}


def test_only_the_numbers_of_a_lost_host_move() -> None:
    # b is lost: d and a second slot on a take what it had
    assert assign_numbers({0: "a", 1: "d", 2: "c", 3: "a"}, ("b", "a", "b", "c")) == {
        0: 1,
        1: 0,
        2: 3,
        3: 2,
    }


def test_a_job_that_has_another_parallelism_now() -> None:
    assert assign_numbers({0: "b", 1: "a", 2: "c"}, ("a", "b")) == {0: 1, 1: 0, 2: 2}
    assert assign_numbers({0: "c", 1: "b"}, ("a", "b", "c")) == {0: 0, 1: 1}


_hosts = st.lists(st.sampled_from("abcd"), max_size=12)


@given(_hosts, _hosts)
def test_each_number_is_given_once_and_as_many_as_possible_stay(
    now: list[str], before: list[str]
) -> None:
    numbers = assign_numbers(dict(enumerate(now)), before)
    assert sorted(numbers.values()) == list(range(len(now)))
    stayed = sum(
        number < len(before) and before[number] == now[task] for task, number in numbers.items()
    )
    there = before[: len(now)]
    assert stayed == sum(min(now.count(host), there.count(host)) for host in set(now))
