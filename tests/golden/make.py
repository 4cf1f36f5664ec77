"""Writes the golden files of this version anew: ``python -m tests.golden.make``.

A checkpoint of a job with every kind of state, and a state file with a value of every type.

Run it, and commit what it writes, when a version is released, or when the format of saved state was
changed on purpose before its release. The checkpoints of released versions stay as they are.
"""

import shutil
import tempfile
from pathlib import Path

import holdfast
from holdfast.checkpoint.store import CheckpointStore
from holdfast.errors import UserFunctionError
from tests.golden.program import FAIL_AT, JOB, job
from tests.golden.types import write_types

GOLDEN = Path(__file__).parent / "checkpoints"
TYPE_FILES = Path(__file__).parent / "values"


def main() -> None:
    (TYPE_FILES / f"{holdfast.__version__}.state").write_bytes(write_types())
    _make_checkpoint()


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
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
    for begun in target.rglob("chk-*"):
        if not any(begun.iterdir()):
            begun.rmdir()
    files = [file for file in target.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    print(f"{len(files)} files, {size} bytes in {target}")


if __name__ == "__main__":
    main()
