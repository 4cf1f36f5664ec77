"""A ``SourceFunction`` as a source."""

from __future__ import annotations

from holdfast.datastream.connectors.base import Source, SourceReader
from holdfast.datastream.functions import ParallelSourceFunction, SourceFunction

__all__ = ["FunctionSource"]


class FunctionSource(Source):
    """Runs a source function. The runtime keeps its loop alive from epoch to epoch."""

    def __init__(self, function: SourceFunction) -> None:
        """Take the function object of the user's program."""
        self.function = function

    @property
    def parallelism_limit(self) -> int | None:
        """Return one, unless the function runs in parallel."""
        return None if isinstance(self.function, ParallelSourceFunction) else 1

    @property
    def gives_timestamps(self) -> bool:
        """Return whether records come with timestamps."""
        return self.function.gives_timestamps

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        """Raise an error: the runtime runs the loop, which has no position to restore."""
        raise NotImplementedError
