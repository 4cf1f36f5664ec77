import pytest

from holdfast.common import Configuration
from holdfast.common.options.recovery import (
    AFRESH,
    CLAIM_MODE,
    FROM_LOCAL,
    NON_RESTORED_STATE,
    RESTORE_PATH,
    ClaimMode,
)


@pytest.mark.parametrize("prefix", ["execution.state-recovery", "execution.savepoint"])
def test_the_start_from_a_savepoint(prefix):
    configuration = Configuration(
        {f"{prefix}.path": "/savepoints/1", f"{prefix}.ignore-unclaimed-state": "true"}
    )
    assert RESTORE_PATH.find(configuration) == "/savepoints/1"
    assert NON_RESTORED_STATE.get(configuration)


def test_a_job_starts_from_no_savepoint_by_default():
    assert RESTORE_PATH.find(Configuration()) is None
    assert not NON_RESTORED_STATE.get(Configuration())
    assert CLAIM_MODE.get(Configuration()) is ClaimMode.NO_CLAIM
    assert not AFRESH.get(Configuration())


def test_who_owns_the_savepoint_and_starting_afresh():
    configuration = Configuration(
        {"execution.state-recovery.claim-mode": "claim", "holdfast.start-afresh": "true"}
    )
    assert CLAIM_MODE.get(configuration) is ClaimMode.CLAIM
    assert AFRESH.get(configuration)


@pytest.mark.parametrize(
    "key", ["execution.state-recovery.from-local", "state.backend.local-recovery"]
)
def test_hosts_keep_copies_of_state_unless_they_are_told_not_to(key):
    assert FROM_LOCAL.get(Configuration())
    assert not FROM_LOCAL.get(Configuration({key: "false"}))
