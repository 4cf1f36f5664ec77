"""The settings for the checkpoint or savepoint that a job starts from."""

from __future__ import annotations

from enum import Enum
from typing import Final

from holdfast.common.options.setting import choice, flag, text


class ClaimMode(Enum):
    """The owner of the savepoint that a job starts from, in Flink's terms."""

    #: the job: it deletes the savepoint once it has a checkpoint of its own
    CLAIM = "claim"
    #: its creator; the job only reads it
    NO_CLAIM = "no-claim"
    #: as NO_CLAIM
    LEGACY = "legacy"


#: the checkpoint or savepoint that the job starts from, if set
RESTORE_PATH: Final = text("execution.state-recovery.path", older=("execution.savepoint.path",))
#: whether a start from a savepoint may ignore state that belongs to no operator
NON_RESTORED_STATE: Final = flag(
    "execution.state-recovery.ignore-unclaimed-state",
    older=("execution.savepoint.ignore-unclaimed-state",),
)
#: who owns the savepoint that the job starts from
CLAIM_MODE: Final = choice("execution.state-recovery.claim-mode", ClaimMode, ClaimMode.NO_CLAIM)
#: whether pickled state of other jobs may be restored; a checkpoint from another
#: source may run code when it is unpickled, so this is off by default
PICKLED_STATE: Final = flag("holdfast.state-recovery.allow-pickled-state")
#: whether hosts keep copies of state files, to restore from them
FROM_LOCAL: Final = flag(
    "execution.state-recovery.from-local", True, older=("state.backend.local-recovery",)
)
#: whether the job starts from the beginning, even if there are checkpoints
AFRESH: Final = flag("holdfast.start-afresh")
