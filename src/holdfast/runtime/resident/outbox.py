"""The output of a resident subtask: blocks go to their channel at once, and wait for credit there.

So a function that makes millions of records out of one is blocked in the middle of its call, as in
Flink, and blocks do not accumulate.
"""

from __future__ import annotations

import time
from typing import Protocol

from holdfast.runtime.routing import Outbox
from holdfast.runtime.wire.blocks import Block
from holdfast.runtime.wire.protocol import StoredState


class Post(Protocol):
    """Carries what a subtask sends. The slot implements it."""

    def send(self, block: Block) -> float:
        """Send a block; return how long it had to wait for credit, in seconds."""

    def put_back(self, producer: tuple[int, int], target: tuple[int, int], size: int) -> None:
        """Allow a producer to send this many bytes more to a subtask of this slot."""

    def stored(self, state: StoredState) -> None:
        """Report to the driver a state that was written, or could not be written."""


class ChannelOutbox(Outbox):
    """The blocks of one subtask as long as it lives, numbered per target."""

    def __init__(self, level: int, subtask: int, stamp: str, post: Post) -> None:
        """Send through this post."""
        super().__init__(level, subtask, stamp)
        self._post = post
        #: when the block was handed on that is being sent now
        self._sending_since: float | None = None

    def held_up_until(self, now: float) -> float:
        """Return how long blocks have waited for credit, with one that waits now; any thread."""
        since = self._sending_since
        return self.held_up + (0.0 if since is None else max(0.0, now - since))

    def _hand_on(self, block: Block) -> None:
        """Send a numbered block as soon as there is credit for it."""
        self._sending_since = time.perf_counter()
        try:
            waited = self._post.send(block)
        finally:
            self._sending_since = None
        self.held_up += waited
