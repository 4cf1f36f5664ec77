"""The requests for checkpoints and savepoints that wait for an epoch."""

from __future__ import annotations

from collections import deque

from holdfast.checkpoint.events import CheckpointRequested


class WaitingRequests(deque[CheckpointRequested]):
    """The requests, oldest first."""

    def possible(self, has_room: bool) -> list[CheckpointRequested]:
        """Return those that the next epoch could serve; ``has_room``: for a checkpoint."""
        return [request for request in self if request.directory is not None or has_room]

    def take(self, has_room: bool) -> tuple[CheckpointRequested, ...]:
        """Take the requests of the next checkpoint: one for a savepoint, or all for checkpoints."""
        possible = self.possible(has_room)
        taken = possible[:1]
        if taken and taken[0].directory is None:
            taken = [request for request in possible if request.directory is None]
        for request in taken:
            self.remove(request)
        return tuple(taken)
