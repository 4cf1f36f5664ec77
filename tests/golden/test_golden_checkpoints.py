"""Checkpoints of released versions, and of this one, can be gone on from with every state right.

If this fails after a change of the format that was meant: add a way to read what was released, and
write the files of an unreleased version anew with ``python -m tests.golden.make``.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden.checks import by_kind, check_told
from tests.golden.make import GOLDEN
from tests.golden.program import JOB, job

VERSIONS = sorted(path.name for path in GOLDEN.iterdir())


def test_this_version_has_a_checkpoint() -> None:
    import holdfast

    assert holdfast.__version__ in VERSIONS


@pytest.mark.spark
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_goes_on_from_it(version: str, spark: Any, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / version, tmp_path, dirs_exist_ok=True)
    check_told(by_kind(job(tmp_path, making=False).execute_and_collect(JOB)))
