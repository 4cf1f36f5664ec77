"""What leaves a subtask: blocks go to their channel at once, and wait there for credit.

A function that makes millions of records out of one is held up in the middle of its call, then, as
in Flink, and nothing piles up.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.runtime.blocks import Block
from holdfast.runtime.protocol import StoredState
from holdfast.runtime.routing import Outbox

__all__ = ["ChannelOutbox", "Post"]


class Post(Protocol):
    """Carries what a subtask sends; how, is the slot's business."""

    def send(self, block: Block) -> float:
        """Send a block; returns how long it had to wait for room, in seconds."""

    def put_back(self, producer: tuple[int, int], target: tuple[int, int], size: int) -> None:
        """A producer may send so many bytes more to a subtask of this slot."""

    def stored(self, state: StoredState) -> None:
        """Tell the driver of a state that was written, or could not be."""


class ChannelOutbox(Outbox):
    """The blocks of one subtask for as long as it lives, numbered per target."""

    def __init__(self, level: int, subtask: int, stamp: str, post: Post) -> None:
        """Send through this post."""
        super().__init__(level, subtask, stamp)
        self._post = post

    def _hand_on(self, block: Block) -> None:
        """Send a numbered block at once, when there is room for it."""
        self.held_up += self._post.send(block)
