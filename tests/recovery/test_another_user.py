"""Another user of the machine makes things first, and looks: no door opens, no job stands still."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.common import Configuration
from holdfast.common.private import user_directory
from holdfast.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from holdfast.datastream.state import ValueStateDescriptor
from holdfast.rest.registry import Registration, registered
from holdfast.testing import LocalExecutor
from tests.another_user import as_another_user, as_root, common_place, refused

pytestmark = as_root


class Count(KeyedProcessFunction):
    """Counts what came for each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", int))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[object]:
        self._count.update((self._count.value() or 0) + 1)
        yield ctx.get_current_key(), self._count.value()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary directory, which all users share."""
    with common_place() as path:
        monkeypatch.delenv("HOLDFAST_RUNTIME_DIR", raising=False)
        monkeypatch.setattr(tempfile, "tempdir", str(path))
        (path / "home").mkdir(mode=0o700)
        monkeypatch.setenv("HOME", str(path / "home"))
        yield path


def job(place: Path, **settings: str) -> LocalExecutor:
    """A job with state in RocksDB and checkpoints."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    configuration = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.dir": str(place / "checkpoints"),
        **named,
    }
    env = StreamExecutionEnvironment(Configuration(configuration))
    env.set_parallelism(1).enable_checkpointing(1000)
    counts = env.from_collection(list(range(9))).key_by(lambda n: n % 3).process(Count())
    return LocalExecutor(counts, quota=3)


def run(place: Path, **settings: str) -> None:
    """Run the job to its end, with the right results."""
    with job(place, **settings) as executor:
        executor.run_to_end()
        assert sorted(executor.records)[-1] == (2, 3)


def take(kind: str, path: Path, victim: Path) -> Callable[[], object]:
    """What another user does to have a name first."""

    def act() -> None:
        if kind == "directory":
            path.mkdir()
            path.chmod(0o777)
        elif kind == "file":
            path.touch()
        elif kind == "link":
            path.symlink_to(victim)
        else:
            os.mkfifo(path)

    return act


@pytest.mark.parametrize("kind", ["directory", "file", "link", "pipe"])
def test_a_name_that_was_taken_stops_no_job_and_is_not_used(place: Path, kind: str) -> None:
    taken = place / f"holdfast-{os.getuid()}"
    assert as_another_user(take(kind, taken, place)) == ""
    run(place)
    assert user_directory() == place / "home" / ".cache" / "holdfast"
    if kind == "directory":
        assert list(taken.iterdir()) == []
    registration = Registration("http://127.0.0.1:1", "secret")
    assert [entry.token for entry in registered()] == ["secret"]
    registration.remove()


def test_without_any_place_the_error_says_what_to_do(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_another_user(take("directory", place / f"holdfast-{os.getuid()}", place))
    (place / "home" / ".cache").mkdir(mode=0o777)
    (place / "home" / ".cache" / "holdfast").symlink_to(place)
    with pytest.raises(OSError, match=r"is not a directory.*HOLDFAST_RUNTIME_DIR"):
        run(place)
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(place / "home" / "elsewhere"))
    run(place)


def test_nobody_else_sees_databases_state_or_tokens_of_a_running_job(place: Path) -> None:
    registration = Registration("http://127.0.0.1:1", "secret")
    with job(place) as executor:
        executor.epoch(checkpoint=True)
        saved = Path(executor.savepoint(place / "savepoints"))
        databases = list(place.rglob("CURRENT"))
        tables = [path for path in place.rglob("*") if path.suffix in (".table", ".sst", ".state")]
        tokens = list(place.rglob("server.json"))
        assert databases
        assert tokens
        assert {path.suffix for path in tables} == {".table", ".sst", ".state"}
        assert any(saved in path.parents for path in tables)
        for path in (*databases, *tables, *tokens):
            assert refused(path.read_bytes), path
            assert refused(path.stat), path
        for folder in {path.parent for path in (*databases, *tables, *tokens)}:
            assert refused(lambda folder=folder: list(folder.iterdir())), folder
            assert refused((folder / "planted").touch), folder
    registration.remove()


class Attack:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self._mark}",)


def forge(directory: Path, mark: Path) -> Path:
    """Make a database with code in all that a job reads first."""
    from holdfast.state.backends.rocksdb.database import Database, budget_of
    from holdfast.state.backends.rocksdb.local import _OWN, _STANDING

    directory.mkdir()
    database = Database(directory, budget_of(16 << 20))
    code = pickle.dumps(Attack(mark))
    database.write({_STANDING: code, _OWN + b"states": code, _OWN + b"blob\x92\xa1o\xa1f": code})
    database.close()
    return directory


def test_a_database_that_another_user_has_made_is_not_opened(place: Path) -> None:
    local, mark = place / "local", place / "mark"
    local.mkdir()
    local.chmod(0o1777)
    with job(place, state_backend_rocksdb_localdir=str(local)) as executor:
        # the name cannot be guessed: let us say that it has leaked
        home = executor._engine._state.home(executor._engine._key, 1, 0)
        forged = forge(place / "forged", mark)
        assert as_another_user(lambda: shutil.copytree(forged, home / "0")) == ""
        assert (home / "0" / "CURRENT").stat().st_uid != os.getuid()
        with pytest.raises(Exception, match=r"belongs to user 65534.*rocksdb.localdir"):
            executor.run_to_end()
    assert not mark.exists()
    # a job that is started again has other names
    run(place, state_backend_rocksdb_localdir=str(local))
    assert not mark.exists()


def test_pipes_in_a_common_directory_block_nobody(place: Path) -> None:
    from holdfast.driver.directory import make_job_directory

    local = place / "local"
    local.mkdir()
    local.chmod(0o1777)

    def act() -> None:
        for kind in ("job", "state", "server"):
            trap = local / f"holdfast-{kind}-{'0' * 20}"
            trap.mkdir()
            for name in ("lock", "origin"):
                os.mkfifo(trap / name)
            os.mkfifo(local / f"holdfast-{kind}-{'1' * 20}")

    assert as_another_user(act) == ""
    before = set(local.iterdir())
    run(place, state_backend_rocksdb_localdir=str(local))
    make_job_directory(str(local)).remove()
    assert set(local.iterdir()) == before, "what belongs to others stays"


def test_a_checkpoint_directory_that_another_user_has_made_is_refused(place: Path) -> None:
    named = place / "checkpoints"
    named.mkdir()
    named.chmod(0o1777)
    with job(place) as executor:
        (made,) = named.iterdir()
        name = made.name
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        executor.run_to_end()
    shutil.rmtree(made)
    assert as_another_user(take("directory", named / name, place)) == ""
    with pytest.raises(OSError, match="it belongs to user 65534"):
        job(place)


def test_the_command_line_finds_the_jobs_although_the_name_was_taken(place: Path) -> None:
    assert as_another_user(take("directory", place / f"holdfast-{os.getuid()}", place)) == ""
    registration = Registration("http://127.0.0.1:1", "secret")
    program = "from holdfast.rest.registry import registered; print(registered()[0].token)"
    environment = {**os.environ, "TMPDIR": str(place)}
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert found.stdout == "secret\n"
    registration.remove()
