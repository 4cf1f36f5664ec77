"""Running counts of a subtask that survive a failure: operator state behind metrics."""

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from holdfast.common import Types
from holdfast.datastream import RuntimeContext
from holdfast.datastream.functions import FunctionInitializationContext
from holdfast.datastream.state import ListState, ListStateDescriptor

__all__ = ["Tally", "show"]

_COUNT = Types.TUPLE([Types.STRING(), Types.LONG()])


class Tally:
    """Counts by name, for one subtask of a function that is a ``CheckpointedFunction``.

    The sum over the subtasks is what counts: after a rescaling, a subtask goes on with any share of
    the counts, and one of its own may be below zero.
    """

    def __init__(self, *names: str) -> None:
        self._counts: Counter[str] = Counter(dict.fromkeys(names, 0))

    def add(self, name: str, number: int) -> None:
        """Count up, or down."""
        self._counts[name] += number

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Go on with this subtask's share."""
        self._state: ListState[tuple[str, int]] = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("tally", _COUNT)
        )
        for name, number in self._state.get():
            self._counts[name] += number

    def snapshot_state(self) -> None:
        """Give the counts to a checkpoint."""
        self._state.update(list(self._counts.items()))

    def __getitem__(self, name: str) -> int:
        return self._counts[name]


def show(
    runtime_context: RuntimeContext, group: str, names: Iterable[str], read: Callable[[str], int]
) -> None:
    """Make metrics of counts.

    ``read`` looks a count up anew each time: a function's fields are others in another process.
    """
    metrics = runtime_context.get_metrics_group().add_group(group)
    for name in names:
        metrics.gauge(name, partial(read, name))
