"""Two runs are compared by what a sink promises."""

from __future__ import annotations

from collections import Counter

from holdfast.torture.comparing import Guarantee, SinkContents, compare

AT_LEAST = Guarantee.AT_LEAST_ONCE


def test_the_same_records_in_another_order_do_not_differ() -> None:
    found = compare(SinkContents.of_records("s", "aab"), SinkContents.of_records("s", "aba"))
    assert not found.differs
    assert (found.expected, found.found) == (3, 3)


def test_exactly_once_counts_every_record() -> None:
    found = compare(SinkContents.of_records("s", "aab"), SinkContents.of_records("s", "abbc"))
    assert (found.missing, found.surplus) == (Counter("a"), Counter("bc"))
    assert found.differs


def test_at_least_once_allows_repetitions_and_nothing_else() -> None:
    expected = SinkContents.of_records("s", "aab", AT_LEAST)
    again = compare(expected, SinkContents.of_records("s", "aaabbb", AT_LEAST))
    assert not again.differs
    assert again.repeated == 3
    other = compare(expected, SinkContents.of_records("s", "abbc", AT_LEAST))
    assert (other.missing, other.surplus, other.repeated) == (Counter("a"), Counter("c"), 1)


def test_by_key_only_the_last_value_counts() -> None:
    expected = SinkContents.of_values("t", {"x": "1", "y": "2"})
    assert not compare(expected, SinkContents.of_values("t", {"y": "2", "x": "1"})).differs
    found = compare(expected, SinkContents.of_values("t", {"x": "3", "y": "2"}))
    assert (found.missing, found.surplus) == (Counter(["x = 1"]), Counter(["x = 3"]))


def test_a_sink_that_cannot_be_read_is_not_compared() -> None:
    found = compare(SinkContents.of_records("s", "a"), SinkContents("s", unread="no reader"))
    assert (found.unread, found.differs) == ("no reader", False)


def test_json_objects_are_compared_whatever_the_order_of_their_keys() -> None:
    expected = SinkContents.of_records("s", ['{"a": 1, "b": 2}', "{not json"])
    assert not compare(
        expected, SinkContents.of_records("s", ['{"b":2,"a":1}', "{not json"])
    ).differs
