"""What the listeners of a job are to be notified of."""

from __future__ import annotations

from holdfast.checkpoint.events import Notifications


class PendingNotifications:
    """The notifications that no accepted epoch has carried yet.

    Attributes:
        pending: all of them.
        carried: those that the running epoch carries.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.pending = Notifications()
        self.carried = Notifications()

    def __bool__(self) -> bool:
        return self.pending != Notifications()

    def completed(self, checkpoint: int) -> None:
        """Add the notification of a completed checkpoint."""
        pending = self.pending
        self.pending = Notifications((*pending.completed, checkpoint), pending.aborted)

    def aborted(self, checkpoint: int) -> None:
        """Add the notification of an aborted checkpoint."""
        pending = self.pending
        self.pending = Notifications(pending.completed, (*pending.aborted, checkpoint))

    def start_epoch(self) -> None:
        """Let an epoch carry all that are pending."""
        self.carried = self.pending

    def accepted(self) -> None:
        """Remove those that an accepted epoch has carried."""
        self.pending = Notifications(
            tuple(c for c in self.pending.completed if c not in self.carried.completed),
            tuple(c for c in self.pending.aborted if c not in self.carried.aborted),
        )

    def restart(self, restored: int) -> None:
        """Keep only what an attempt that starts from a checkpoint must be notified of.

        Functions are created again with the state of the restored checkpoint, and are not notified
        of later ones.
        """
        self.pending = Notifications(tuple(c for c in self.pending.completed if c <= restored))
