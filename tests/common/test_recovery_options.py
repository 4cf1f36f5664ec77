import pytest

from holdfast.common import Configuration
from holdfast.common.recovery_options import (
    ClaimMode,
    allows_non_restored_state,
    claim_mode,
    restore_path,
    restores_from_local,
    starts_afresh,
)


@pytest.mark.parametrize("prefix", ["execution.state-recovery", "execution.savepoint"])
def test_the_start_from_a_savepoint(prefix):
    configuration = Configuration(
        {f"{prefix}.path": "/savepoints/1", f"{prefix}.ignore-unclaimed-state": "true"}
    )
    assert restore_path(configuration) == "/savepoints/1"
    assert allows_non_restored_state(configuration)


def test_a_job_starts_from_no_savepoint_by_default():
    assert restore_path(Configuration()) is None
    assert not allows_non_restored_state(Configuration())
    assert claim_mode(Configuration()) is ClaimMode.NO_CLAIM
    assert not starts_afresh(Configuration())


def test_who_owns_the_savepoint_and_starting_afresh():
    configuration = Configuration(
        {"execution.state-recovery.claim-mode": "claim", "holdfast.start-afresh": "true"}
    )
    assert claim_mode(configuration) is ClaimMode.CLAIM
    assert starts_afresh(configuration)


@pytest.mark.parametrize(
    "key", ["execution.state-recovery.from-local", "state.backend.local-recovery"]
)
def test_hosts_keep_copies_of_state_unless_they_are_told_not_to(key):
    assert restores_from_local(Configuration())
    assert not restores_from_local(Configuration({key: "false"}))
