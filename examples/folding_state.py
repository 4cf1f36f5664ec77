"""FoldingState, which Flink has deprecated, beside the AggregatingState that replaces it.

Both fold each record into a value that has another type; the first is kept for programs that use
it, and warns. Prints:

    ann: home > shoes > cart, 3 pages
    bob: home > hats, 2 pages
"""

import warnings
from collections.abc import Iterator

from holdfast.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from holdfast.datastream.state import AggregatingStateDescriptor, FoldingStateDescriptor

CLICKS = [("ann", "home"), ("bob", "home"), ("ann", "shoes"), ("ann", "cart"), ("bob", "hats")]


class Pages(AggregateFunction):
    """Counts what it is given."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: str, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> str:
        return f"{accumulator} pages"

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Trail(KeyedProcessFunction):
    """The pages of a visitor, as a text that grows, and how many there were."""

    def open(self, runtime_context: RuntimeContext) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            trail = FoldingStateDescriptor("trail", "", _longer, str)
        self.trail = runtime_context.get_folding_state(trail)
        self.pages = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("pages", Pages(), int)
        )

    def process_element(
        self, value: tuple[str, str], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[str, str]]:
        user, page = value
        self.trail.add(page)
        self.pages.add(page)
        yield user, f"{self.trail.get()}, {self.pages.get()}"


def _longer(trail: str, page: str) -> str:
    return f"{trail} > {page}" if trail else page


def main() -> None:
    """Run the job; print what it says last of each visitor."""
    env = StreamExecutionEnvironment.get_execution_environment()
    clicks = env.from_collection(CLICKS).key_by(lambda click: click[0])
    for user, trail in sorted(dict(clicks.process(Trail()).execute_and_collect()).items()):
        print(f"{user}: {trail}")


if __name__ == "__main__":
    main()
