"""The records that every system works on.

A record is computed from its index alone, so that all systems see the same ones without a file
between them. The arithmetic stays below 2**63, because PySpark's programs do it in SQL.

Keys are drawn as if at random: the square of a multiple, modulo a prime, gives as many distinct
keys per thousand records as a random number generator does, always the same ones, in every
language, for two multiplications.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = [
    "KEYS",
    "MULTIPLIER",
    "PRIME",
    "VOCABULARY",
    "WORDS_PER_SENTENCE",
    "Record",
    "bootstrapped",
    "draw",
    "expected_total",
    "record",
    "sentence",
]

#: A user, an amount, and the index of the record.
Record = tuple[str, float, int]

KEYS = 100_000
VOCABULARY = 10_000
WORDS_PER_SENTENCE = 8

MULTIPLIER = 1_103_515_245
PRIME = 2_147_483_647


def draw(index: int, choices: int) -> int:
    """Return the pseudo-random choice, below ``choices``, that belongs to ``index``.

    >>> [draw(i, 100) for i in range(5)]
    [0, 38, 11, 13, 44]
    """
    x = index * MULTIPLIER % PRIME
    return x * x % PRIME % choices


def record(index: int, keys: int = KEYS) -> Record:
    """Return the record with the given index.

    >>> record(1, 100)
    ('user-38', 1.0, 1)
    """
    x = index * MULTIPLIER % PRIME
    return f"user-{x * x % PRIME % keys}", float(index % 1000), index


def bootstrapped(keys: int) -> Callable[[int], Record]:
    """Return a variant of `record` whose first ``keys`` records have one key each, all distinct."""

    def make(index: int) -> Record:
        if index < keys:
            return f"user-{index}", float(index % 1000), index
        return record(index, keys)

    return make


def sentence(index: int) -> str:
    """Return the sentence with the given index: `WORDS_PER_SENTENCE` words between blanks.

    >>> sentence(0)[:14]
    'word0 word9738'
    """
    first = index * WORDS_PER_SENTENCE
    return " ".join(f"word{draw(i, VOCABULARY)}" for i in range(first, first + WORDS_PER_SENTENCE))


def expected_total(count: int, keys: int) -> int:
    """Return the sum of all counts of so many drawn records: 1 + 2 + … for each key.

    >>> expected_total(3, 1)
    6
    """
    seen: dict[int, int] = {}
    total = 0
    for index in range(count):
        key = draw(index, keys)
        seen[key] = seen.get(key, 0) + 1
        total += seen[key]
    return total
