"""A file in another's place is refused, and so is the metadata of another checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from holdfast.checkpoint.errors import CheckpointCorruptionError
from holdfast.checkpoint.saved_image import verify_files
from holdfast.checkpoint.savepoints import read_savepoint
from holdfast.errors import HoldfastError
from holdfast.savepoint import Savepoint
from holdfast.state.errors import StateCorruptionError
from holdfast.testing import LocalExecutor
from tests.forging import replace_state_file
from tests.savepoint.jobs import BACKENDS, configuration, everything

RECORDS = [(f"k{n % 20}", n) for n in range(60)]


def savepoints(directory: Path, backend: str) -> list[Path]:
    """Two savepoints of a job with two subtasks, and a retained checkpoint between them."""
    config = configuration(directory, backend)
    config.set_string("parallelism.default", "2")
    with LocalExecutor(everything(config, RECORDS), quota=10) as job:
        found = []
        for _ in range(2):
            job.epoch(checkpoint=True)
            found.append(Path(job.savepoint()))
    return found


def read_all(path: Path) -> None:
    savepoint = Savepoint.read(path)
    savepoint.sizes()
    for state in savepoint.operators["everything"].states:
        if state.keyed and not state.internal:
            savepoint.keyed_state("everything", state.name).to_pylist()


def pairs(files: list[Path], names: list[str]) -> Iterator[tuple[Path, str]]:
    for number, path in enumerate(files):
        others = [name for name in names if name != path.name]
        yield from ((path, others[(number * 5 + step) % len(others)]) for step in range(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_file_can_stand_in_anothers_place(tmp_path: Path, backend: str) -> None:
    """Not within a savepoint, and not between two: every file in three others' places."""
    first, second = savepoints(tmp_path / "one", backend)
    (other, _) = savepoints(tmp_path / "two", backend)
    read_all(second)
    files = sorted((second / "state").iterdir())
    strangers = [*files, *(other / "state").iterdir(), *(first / "state").iterdir()]
    contents = {path.name: path.read_bytes() for path in strangers}
    metadata = (second / "_metadata").read_bytes()
    assert len(files) >= 4
    assert contents.keys() != {path.name for path in files}
    for path, name in pairs(files, list(contents)):
        # the reference says the size of what is there now, or most swaps would be found by it
        replace_state_file(path, contents[name])
        told = f"it contains the file '{name}', which was stored under this name"
        image = read_savepoint(second)
        with pytest.raises(CheckpointCorruptionError, match=told):
            verify_files(image.metadata, image.storage, deep=True)
        if path.suffix == ".state":
            with pytest.raises(StateCorruptionError, match=told):
                read_all(second)
        path.write_bytes(contents[path.name])
        (second / "_metadata").write_bytes(metadata)
    read_all(second)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_job_does_not_start_from_swapped_files(tmp_path: Path, backend: str) -> None:
    _, second = savepoints(tmp_path / "one", backend)
    one, two = sorted((second / "state").glob("*.state"))[:2]
    contents = one.read_bytes(), two.read_bytes()
    replace_state_file(one, contents[1])
    replace_state_file(two, contents[0])
    config = configuration(tmp_path / "next", backend, start=str(second))
    config.set_string("parallelism.default", "2")
    with (
        pytest.raises(HoldfastError, match="which was stored under this name"),
        LocalExecutor(everything(config, RECORDS)) as job,
    ):
        job.run_to_end()


def test_the_metadata_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    first, second = savepoints(tmp_path / "one", "hashmap")
    (checkpoints,) = (tmp_path / "one" / "checkpoints").iterdir()
    chk = next(checkpoints.glob("chk-*/_metadata")).parent
    taken = [path / "_metadata" for path in (first, second)]
    contents = [path.read_bytes() for path in taken]
    for path, other in permutations(taken):
        path.write_bytes(contents[taken.index(other)])
        with pytest.raises(CheckpointCorruptionError, match=r"expected checkpoint \d+, found chec"):
            read_savepoint(path.parent)
        path.write_bytes(contents[taken.index(path)])
    read_savepoint(chk)
    moved = shutil.copytree(chk, chk.with_name("chk-99"))
    with pytest.raises(
        CheckpointCorruptionError, match=r"expected checkpoint 99, found checkpoint"
    ):
        read_savepoint(moved)


def test_a_savepoint_may_be_moved_and_renamed(tmp_path: Path) -> None:
    first, _ = savepoints(tmp_path / "one", "hashmap")
    read_all(first.rename(tmp_path / "kept"))
    read_all((tmp_path / "kept").rename(tmp_path / "savepoint-1"))
