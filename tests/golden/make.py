"""Writes golden files anew: ``python -m tests.golden.make [commit]``.

Without a commit, those of this version: a checkpoint of a job with every kind of state, and a state
file with a value of every type. Run it, and commit what it writes, when a version is released, or
when the format of saved state was changed on purpose before its release. The checkpoints of
released versions stay as they are.

With a commit, those that the code of that commit writes: checkpoints and savepoints of both state
backends, and a value of every type. See `tests.golden.commits`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast
from holdfast.checkpoint.store import CheckpointStore
from holdfast.errors import UserFunctionError
from tests.golden import commits
from tests.golden.program import FAIL_AT, JOB, job
from tests.golden.types import write_types

GOLDEN = Path(__file__).parent / "checkpoints"
TYPE_FILES = Path(__file__).parent / "values"
_ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            _make_types(holdfast.__version__)
            _make_checkpoint()
        case [commit]:
            _run_code_of(commit)
        case [commit, checkout]:
            _make_commit(commit, Path(checkout))
        case _:
            raise SystemExit(__doc__)


def _make_types(version: str) -> None:
    (TYPE_FILES / f"{version}.state").write_bytes(write_types())


def _make_checkpoint() -> None:
    target = GOLDEN / holdfast.__version__
    with tempfile.TemporaryDirectory() as folder:
        try:
            list(job(Path(folder), making=True).execute_and_collect(JOB))
        except UserFunctionError as error:
            if f"failed at {FAIL_AT}, as it should" not in str(error.original):
                raise
        else:
            raise SystemExit("the job did not fail, so it left no checkpoint")
        CheckpointStore(Path(folder) / JOB).collect(keep=())
        (Path(folder) / JOB / "lock").unlink(missing_ok=True)
        # NB: it has the settings of this machine
        shutil.rmtree(Path(folder) / JOB / "history", ignore_errors=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
    for begun in target.rglob("chk-*"):
        if not any(begun.iterdir()):
            begun.rmdir()
    _tell(target)


def _run_code_of(commit: str) -> None:
    """Run this module again, with the Holdfast of a commit and the job of today."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        subprocess.run(["git", "worktree", "add", "--detach", checkout, commit], check=True)
        try:
            subprocess.run(
                [sys.executable, "-m", "tests.golden.make", commit, checkout],
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": str(checkout / "src")},
                check=True,
            )
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", checkout], check=True)


def _make_commit(commit: str, checkout: Path) -> None:
    found = Path(holdfast.__file__)
    if not found.is_relative_to(checkout):
        raise SystemExit(f"this is the Holdfast in {found}, not the one in {checkout}")
    _make_types(commit)
    target = commits.COMMITS / commit
    for backend in commits.BACKENDS:
        commits.make(target / backend, backend)
    _tell(target)


def _tell(target: Path) -> None:
    files = [file for file in target.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    print(f"{len(files)} files, {size} bytes in {target}")


if __name__ == "__main__":
    main(sys.argv[1:])
