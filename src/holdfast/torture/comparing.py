"""Compares what sinks hold after a disturbed run with what they hold after an undisturbed one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Guarantee", "SinkComparison", "SinkContents", "canonical", "compare", "compare_all"]


class Guarantee(Enum):
    """What a sink promises, and so what is compared."""

    #: every record as often as in the undisturbed run
    EXACTLY_ONCE = "exactly once"
    #: every record at least as often, and no other record
    AT_LEAST_ONCE = "at least once"
    #: the last value of every key
    BY_KEY = "by key"


@dataclass(frozen=True)
class SinkContents:
    """What a sink holds, as text.

    Attributes:
        records: how often it has each record.
        values: by key, if records replace each other.
        unread: why it cannot be read; empty if it can.
    """

    name: str
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    records: Counter[str] = field(default_factory=Counter)
    values: Mapping[str, str] = field(default_factory=dict)
    unread: str = ""

    @staticmethod
    def of_records(
        name: str, records: Iterable[str], guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    ) -> SinkContents:
        """Return the contents of a sink that appends records."""
        return SinkContents(name, guarantee, Counter(map(canonical, records)))

    @staticmethod
    def of_values(name: str, values: Mapping[str, str]) -> SinkContents:
        """Return the contents of a sink in which a record replaces that of the same key."""
        made = {key: canonical(value) for key, value in values.items()}
        return SinkContents(name, Guarantee.BY_KEY, values=made)

    @property
    def size(self) -> int:
        """Return how many records there are."""
        return len(self.values) if self.guarantee is Guarantee.BY_KEY else self.records.total()


@dataclass(frozen=True)
class SinkComparison:
    """How one sink differs from the undisturbed run.

    Attributes:
        missing: records that are not there, or less often.
        surplus: records that should not be there, or not so often.
        repeated: how many records came again where the sink allows it.
        unread: why it was not compared; empty if it was.
    """

    name: str
    guarantee: Guarantee
    expected: int
    found: int
    missing: Counter[str] = field(default_factory=Counter)
    surplus: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    unread: str = ""

    @property
    def differs(self) -> bool:
        """Return whether there is a difference that the sink's guarantee does not allow."""
        return bool(self.missing or self.surplus)


def compare(expected: SinkContents, found: SinkContents) -> SinkComparison:
    """Compare a sink after two runs."""
    guarantee = expected.guarantee
    if expected.unread or found.unread:
        return SinkComparison(
            expected.name, guarantee, 0, 0, unread=expected.unread or found.unread
        )
    wanted, given = _counted(expected), _counted(found)
    missing, surplus = wanted - given, given - wanted
    repeated = 0
    if guarantee is Guarantee.AT_LEAST_ONCE:
        repeated = sum(count for record, count in surplus.items() if record in wanted)
        surplus = Counter({text: count for text, count in surplus.items() if text not in wanted})
    return SinkComparison(
        expected.name, guarantee, expected.size, found.size, missing, surplus, repeated
    )


def compare_all(
    expected: Mapping[str, SinkContents], found: Mapping[str, SinkContents]
) -> dict[str, SinkComparison]:
    """Compare all sinks of two runs, by id; a sink that one of them lacks is empty there."""
    return {
        name: compare(
            expected.get(name, _like(found, name)), found.get(name, _like(expected, name))
        )
        for name in {**expected, **found}
    }


def _like(others: Mapping[str, SinkContents], name: str) -> SinkContents:
    """Return an empty sink with the name and the guarantee of another one."""
    other = others[name] if name in others else SinkContents(name)
    return SinkContents(other.name, other.guarantee)


def canonical(record: str) -> str:
    """Return a record in its usual form: a JSON object with its keys in order."""
    if not record.startswith("{"):
        return record
    try:
        return json.dumps(json.loads(record), sort_keys=True, ensure_ascii=False)
    except ValueError:
        return record


def _counted(contents: SinkContents) -> Counter[str]:
    if contents.guarantee is not Guarantee.BY_KEY:
        return contents.records
    return Counter(f"{key} = {value}" for key, value in contents.values.items())
