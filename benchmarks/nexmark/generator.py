"""Makes the events: event ``n`` is a function of the seed and of ``n``, and of nothing else.

Proportions, hot keys, prices, lengths and times are those of nexmark-flink's generator
(``GeneratorConfig`` and ``NexmarkConfiguration`` with their defaults): of fifty events one is a
person, three are auctions and 46 bids; half of the bids go to one hot auction of the last hundred,
three quarters of them come from one hot bidder of the last hundred people; ten thousand events
to a second of event time. Random numbers are those of Java's ``SplittableRandom`` (splitmix64),
too, but where the original draws one after another without a seed, here each event has numbers of
its own. They are drawn for many events at once, with numpy.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.nexmark.events import AUCTION, BID, PERSON, Event

__all__ = ["BASE_TIME", "CHUNK", "EVENTS_PER_SECOND", "SIDE_INPUT", "Generator"]

#: The time of the first event: 2015-07-15, as in the original of Apache Beam.
BASE_TIME = 1_436_918_400_000
EVENTS_PER_SECOND = 10_000

#: Rows of query 13's table.
SIDE_INPUT = 10_000

#: How many events are made at once.
CHUNK = 50_000

_PEOPLE, _AUCTIONS, _ALL = 1, 3, 50
_FIRST_PERSON = _FIRST_AUCTION = 1000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_ACTIVE_PEOPLE, _AUCTIONS_IN_FLIGHT = 1000, 100
#: ids that are used before they exist
_LEAD = 10
#: one of so many is hot, and gets all but one of so many
_HOT_EVERY = 100
_HOT_SELLERS, _HOT_AUCTIONS, _HOT_BIDDERS, _HOT_CHANNELS = 4, 2, 4, 2
_CHANNELS = 10_000
_BID_BYTES, _AUCTION_BYTES, _PERSON_BYTES = 100, 500, 200

_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_FIRST_NAMES = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES = [
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
]
_HOT_NAMES = ("Google", "Facebook", "Baidu", "Apple")

_Numbers = npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: how many random numbers an event may draw
_DRAWS = 32


class Generator:
    """Makes events by their numbers.

    Args:
        seed: Another seed, other events.
        disorder: Times are shuffled within groups of so many events; 1 leaves them in order.
        rate: Events per second of event time.
    """

    def __init__(self, seed: int = 0, disorder: int = 1, rate: int = EVENTS_PER_SECOND) -> None:
        self._seed = np.uint64(seed * 0x1000003D)
        self._disorder = disorder
        self._rate = rate
        texts = random.Random(seed)
        self._letters = _text(texts, 1 << 18, "")
        self._words = _text(texts, 1 << 16, " ")
        self._hot = [(name, _url(texts)) for name in _HOT_NAMES]
        self._channels = [
            (f"channel-{i}", _url(texts) + (f"&channel_id={i}" if i % 10 else ""))
            for i in range(_CHANNELS)
        ]

    def events(self, first: int, last: int) -> Iterator[Event]:
        """The events from ``first`` up to, and without, ``last``."""
        for start in range(first, last, CHUNK):
            yield from self._chunk(np.arange(start, min(start + CHUNK, last), dtype=np.int64))

    def _chunk(self, arrivals: _Numbers) -> list[Event]:
        """Some events in the order of their arrival."""
        size = self._disorder
        numbers = arrivals // size * size + arrivals * 953 % size
        place = numbers % _ALL
        kinds = np.where(
            place < _PEOPLE, PERSON, np.where(place < _PEOPLE + _AUCTIONS, AUCTION, BID)
        )
        makers = (self._people, self._auctions, self._bids)
        made = [iter(make(numbers[kinds == kind])) for kind, make in enumerate(makers)]
        return [next(made[kind]) for kind in kinds.tolist()]

    def _people(self, numbers: _Numbers) -> list[Event]:
        draw = _Draws(self._seed, numbers)
        names = [
            f"{_FIRST_NAMES[first]} {_LAST_NAMES[last]}"
            for first, last in zip(
                draw.below(len(_FIRST_NAMES)).tolist(),
                draw.below(len(_LAST_NAMES)).tolist(),
                strict=True,
            )
        ]
        emails = [
            f"{user}@{host}.com"
            for user, host in zip(
                self._strings(draw, self._letters, 7),
                self._strings(draw, self._letters, 5),
                strict=True,
            )
        ]
        digits = [draw.below(10_000).tolist() for _ in range(4)]
        cards = [" ".join(f"{four:04d}" for four in row) for row in zip(*digits, strict=True)]
        return _rows(
            PERSON,
            self._times(numbers),
            _last_person(numbers) + _FIRST_PERSON,
            names,
            emails,
            cards,
            _choices(draw, _CITIES),
            _choices(draw, _STATES),
            self._extra(draw, _PERSON_BYTES - 70),
        )

    def _auctions(self, numbers: _Numbers) -> list[Event]:
        draw = _Draws(self._seed, numbers)
        hot = _last_person(numbers) // _HOT_EVERY * _HOT_EVERY
        seller = np.where(draw.below(_HOT_SELLERS) > 0, hot, _some_person(draw, numbers))
        initial = draw.prices()
        times = self._times(numbers)
        ahead = self._times(numbers + _AUCTIONS_IN_FLIGHT * _ALL // _AUCTIONS) - times
        return _rows(
            AUCTION,
            times,
            _last_auction(numbers) + _FIRST_AUCTION,
            seller + _FIRST_PERSON,
            initial,
            initial + draw.prices(),
            times + 1 + draw.below(np.maximum(2 * ahead, 1)),
            draw.below(_CATEGORIES) + _FIRST_CATEGORY,
            self._strings(draw, self._words, 20),
            self._strings(draw, self._words, 100),
            self._extra(draw, _AUCTION_BYTES - 110),
        )

    def _bids(self, numbers: _Numbers) -> list[Event]:
        draw = _Draws(self._seed, numbers)
        hot_auction = _last_auction(numbers) // _HOT_EVERY * _HOT_EVERY
        auction = np.where(draw.below(_HOT_AUCTIONS) > 0, hot_auction, _some_auction(draw, numbers))
        # The second one, so that the hot bidder is not the hot seller.
        hot_bidder = _last_person(numbers) // _HOT_EVERY * _HOT_EVERY + 1
        bidder = np.where(draw.below(_HOT_BIDDERS) > 0, hot_bidder, _some_person(draw, numbers))
        prices = draw.prices()
        is_hot = draw.below(_HOT_CHANNELS) > 0
        hot, cold = draw.below(len(self._hot)), draw.below(_CHANNELS)
        channels = [
            self._hot[number] if warm else self._channels[number]
            for warm, number in zip(
                is_hot.tolist(), np.where(is_hot, hot, cold).tolist(), strict=True
            )
        ]
        return _rows(
            BID,
            self._times(numbers),
            auction + _FIRST_AUCTION,
            bidder + _FIRST_PERSON,
            prices,
            [name for name, _ in channels],
            [url for _, url in channels],
            self._extra(draw, _BID_BYTES - 32),
        )

    def _times(self, numbers: _Numbers) -> _Numbers:
        return BASE_TIME + numbers * 1000 // self._rate

    def _extra(self, draw: _Draws, average: int) -> list[str]:
        """Letters that bring an event to its size, give or take a fifth."""
        vary = round(average * 0.2)
        lengths = average - vary + draw.below(2 * vary)
        return _slices(self._letters, draw, lengths)

    def _strings(self, draw: _Draws, text: str, longest: int) -> list[str]:
        found = _slices(text, draw, 3 + draw.below(longest - 3))
        return [each.strip() for each in found]


class _Draws:
    """Random numbers of some events, one for each with every call."""

    def __init__(self, seed: np.uint64, numbers: _Numbers) -> None:
        self._next = seed + numbers.astype(np.uint64) * np.uint64(_DRAWS) * _GOLDEN

    def below(self, limit: Any) -> _Numbers:
        """Whole numbers from 0 up to, and without, a limit."""
        return (self._mixed() >> np.uint64(33)).astype(np.int64) % limit

    def prices(self) -> _Numbers:
        """From one dollar to a million, in cents; as many of each order of magnitude."""
        uniform = (self._mixed() >> np.uint64(11)) * 2.0**-53
        return np.rint(10.0 ** (uniform * 6.0) * 100.0).astype(np.int64)

    def _mixed(self) -> npt.NDArray[np.uint64]:
        self._next = self._next + _GOLDEN
        z = self._next
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _last_person(numbers: _Numbers) -> _Numbers:
    """The last person that was there, counted from 0."""
    return numbers // _ALL


def _last_auction(numbers: _Numbers) -> _Numbers:
    """The last auction that was there, counted from 0; of an auction, itself."""
    place = np.clip(numbers % _ALL - _PEOPLE, -1, _AUCTIONS - 1)
    return numbers // _ALL * _AUCTIONS + place


def _some_person(draw: _Draws, numbers: _Numbers) -> _Numbers:
    """One of those who are active, or will come soon."""
    people = _last_person(numbers) + 1
    active = np.minimum(people, _ACTIVE_PEOPLE)
    return people - active + draw.below(active + _LEAD)


def _some_auction(draw: _Draws, numbers: _Numbers) -> _Numbers:
    """One of those in flight, or one that will come soon."""
    last = _last_auction(numbers)
    first = np.maximum(last - _AUCTIONS_IN_FLIGHT, 0)
    return first + draw.below(last - first + 1 + _LEAD)


def _choices(draw: _Draws, among: Sequence[str]) -> list[str]:
    return [among[number] for number in draw.below(len(among)).tolist()]


def _slices(text: str, draw: _Draws, lengths: _Numbers) -> list[str]:
    starts = draw.below(len(text) - lengths)
    ends = starts + lengths
    return [text[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _rows(kind: int, *columns: Any) -> list[Event]:
    plain = [column if isinstance(column, list) else column.tolist() for column in columns]
    return list(zip([kind] * len(plain[0]), *plain, strict=True))


def _text(source: random.Random, length: int, special: str) -> str:
    """Random letters, about every thirteenth a special one, and never two of these in a row."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    found: list[str] = []
    for _ in range(length):
        is_special = special and source.randrange(13) == 0 and found and found[-1] != special
        found.append(special if is_special else source.choice(letters))
    return "".join(found)


def _url(source: random.Random) -> str:
    parts = "/".join(_text(source, source.randrange(3, 6), "_") for _ in range(3))
    return f"https://www.nexmark.com/{parts}/item.htm?query=1"
