"""Writes the golden checkpoint of this version anew: ``python -m tests.golden.make``.

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

GOLDEN = Path(__file__).parent / "checkpoints"


def main() -> None:
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
    files = [file for file in target.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    print(f"{len(files)} files, {size} bytes in {target}")


if __name__ == "__main__":
    main()
