"""What a job starts from, as a configuration says it."""

from __future__ import annotations

from enum import Enum
from typing import Final

from holdfast.common._settings import Setting, choice
from holdfast.common.config_options import ConfigOptions
from holdfast.common.configuration import Configuration

__all__ = [
    "FROM_LOCAL",
    "PICKLED_STATE",
    "ClaimMode",
    "allows_non_restored_state",
    "allows_pickled_state",
    "claim_mode",
    "restore_path",
    "restores_from_local",
    "starts_afresh",
]


class ClaimMode(Enum):
    """Who owns the savepoint that a job starts from; Flink's words."""

    #: the job: it deletes the savepoint once it has a checkpoint of its own
    CLAIM = "claim"
    #: whoever made it; the job only reads it
    NO_CLAIM = "no-claim"
    #: as NO_CLAIM
    LEGACY = "legacy"


_RESTORE_PATH: Final = Setting(
    ConfigOptions.key("execution.state-recovery.path").string_type().no_default_value(),
    older=("execution.savepoint.path",),
)
_NON_RESTORED: Final = Setting(
    ConfigOptions.key("execution.state-recovery.ignore-unclaimed-state")
    .boolean_type()
    .default_value(False),
    older=("execution.savepoint.ignore-unclaimed-state",),
)
_CLAIM_MODE: Final = choice("execution.state-recovery.claim-mode", ClaimMode, ClaimMode.NO_CLAIM)
#: a checkpoint from elsewhere may run code when it is unpickled, so this has to be asked for
PICKLED_STATE: Final = "holdfast.state-recovery.allow-pickled-state"
_PICKLED_STATE: Final = Setting(
    ConfigOptions.key(PICKLED_STATE).boolean_type().default_value(False)
)
FROM_LOCAL: Final = "execution.state-recovery.from-local"
_FROM_LOCAL: Final = Setting(
    ConfigOptions.key(FROM_LOCAL).boolean_type().default_value(True),
    older=("state.backend.local-recovery",),
)
_AFRESH: Final = Setting(
    ConfigOptions.key("holdfast.start-afresh").boolean_type().default_value(False)
)


def restore_path(configuration: Configuration) -> str | None:
    """Return the checkpoint or savepoint that the job is to start from, if one is named."""
    return _RESTORE_PATH.find(configuration)


def restores_from_local(configuration: Configuration) -> bool:
    """Return whether hosts keep copies of state files, to restore from them."""
    return _FROM_LOCAL.get(configuration)


def allows_non_restored_state(configuration: Configuration) -> bool:
    """Return whether a start from a savepoint may leave state behind that no operator claims."""
    return _NON_RESTORED.get(configuration)


def allows_pickled_state(configuration: Configuration) -> bool:
    """Return whether pickled state may be restored that the job has not written itself."""
    return _PICKLED_STATE.get(configuration)


def claim_mode(configuration: Configuration) -> ClaimMode:
    """Return who owns the savepoint that the job starts from."""
    return _CLAIM_MODE.get(configuration)


def starts_afresh(configuration: Configuration) -> bool:
    """Return whether the job begins at the beginning, whatever checkpoints there are."""
    return _AFRESH.get(configuration)
