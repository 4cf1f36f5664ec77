"""Every kind of keyed state in one function: the account of each player of a game.

- ``ValueState``: one value, here the player's last move.
- ``ListState``: values one after another, here the scores in order.
- ``MapState``: a mapping of which each entry is read and written by itself, here wins by opponent.
- ``ReducingState``: folds what is added into one value of the same type, here the best score.
- ``AggregatingState``: folds into an accumulator of another type than input and output, here an
  average out of a count and a sum.

Prints one line per game; the last of each player is:

    ada: last=e4, scores=[3, 9, 6], wins={'bob': 1, 'eve': 1}, best=9, average=6.0
    bob: last=d4, scores=[5], wins={}, best=5, average=5.0
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.common import Types
from holdfast.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)


class Game(NamedTuple):
    """The end of a game, from the side of one player."""

    player: str
    opponent: str
    move: str
    score: int
    won: bool


GAMES = [
    Game("ada", "bob", "e4", 3, False),
    Game("bob", "ada", "d4", 5, False),
    Game("ada", "eve", "c4", 9, True),
    Game("ada", "bob", "e4", 6, True),
]


class Average(AggregateFunction):
    """The mean of the values, out of (count, sum)."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Account(KeyedProcessFunction):
    """Keeps all five kinds of state per player."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._last: ValueState[str] = runtime_context.get_state(
            ValueStateDescriptor("last move", Types.STRING())
        )
        self._scores: ListState[int] = runtime_context.get_list_state(
            ListStateDescriptor("scores", Types.INT())
        )
        self._wins: MapState[str, int] = runtime_context.get_map_state(
            MapStateDescriptor("wins", Types.STRING(), Types.INT())
        )
        self._best: ReducingState[int] = runtime_context.get_reducing_state(
            ReducingStateDescriptor("best", max, Types.INT())
        )
        self._average: AggregatingState[int, float] = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor(
                "average", Average(), Types.TUPLE([Types.LONG(), Types.LONG()])
            )
        )

    def process_element(self, value: Game, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        self._last.update(value.move)
        self._scores.add(value.score)
        self._best.add(value.score)
        self._average.add(value.score)
        if value.won:
            self._wins[value.opponent] = self._wins.get(value.opponent, 0) + 1
        yield (
            f"{ctx.get_current_key()}: last={self._last.value()}, scores={list(self._scores)}, "
            f"wins={dict(sorted(self._wins.items()))}, best={self._best.get()}, "
            f"average={self._average.get()}"
        )


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection(GAMES).key_by(lambda game: game.player).process(Account()).print()
    env.execute("all kinds of state")


if __name__ == "__main__":
    main()
