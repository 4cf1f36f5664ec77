"""How faults strike that need no job."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.torture.program import latest_checkpoint
from holdfast.torture.striking import _NO_STORE, _STORE, Striker, _link


def test_the_checkpoint_storage_fails_and_is_back_as_it_was(tmp_path: Path) -> None:
    Striker.prepare(tmp_path)
    checkpoints = tmp_path / "checkpoints"
    taken = checkpoints / "job" / "chk-3" / "_metadata"
    taken.parent.mkdir(parents=True)
    taken.touch()
    assert latest_checkpoint(checkpoints) == 3
    _link(tmp_path, _NO_STORE)
    with pytest.raises(NotADirectoryError):
        (checkpoints / "job" / "chk-4").mkdir(parents=True)
    assert latest_checkpoint(checkpoints) == 0
    _link(tmp_path, _STORE)
    assert latest_checkpoint(checkpoints) == 3
