"""Part files: hidden until their checkpoint is complete, then there, once, on any file system."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.common import Configuration, Encoder
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    OutputFileConfig,
    RollingPolicy,
)
from holdfast.datastream.connectors.files.part_files import (
    FileTransaction,
    Part,
    PartFiles,
    Place,
    Segment,
)
from holdfast.datastream.connectors.files.sink import FileSinkFunction
from holdfast.errors import UserFunctionError
from holdfast.filesystem import (
    FileSystem,
    FileSystemError,
    LocalFileSystem,
    MissingFileError,
    configure,
    file_system_of,
    join,
)
from holdfast.runtime.failures import OperatorFailed
from holdfast.state.errors import StateCorruptionError
from holdfast.testing import EndOfEpoch, LocalExecutor, ScriptedSource
from tests.another_user import NOBODY, common_place
from tests.datastream.sink_engine import Failed, Killed, Lost, SinkEngine

#: a process that is killed does not close its files
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

LINES = Encoder.simple_string_encoder()


@pytest.fixture(params=["local", "s3"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An output directory that is not there yet."""
    if request.param == "local":
        yield str(tmp_path / "out")
        return
    if request.param == "hdfs":
        yield f"{request.getfixturevalue('hdfs')}/{uuid.uuid4().hex}/out"
        return
    s3 = request.getfixturevalue("s3")
    configure(s3.options)
    yield f"{s3.uri}/out"
    configure({})


everywhere = pytest.mark.parametrize(
    "base", ["local", "s3", pytest.param("hdfs", marks=pytest.mark.spark)], indirect=True
)


@pytest.fixture
def local(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def sink(base: str, **settings: Any) -> FileSinkFunction:
    builder = FileSink.for_row_format(base, settings.pop("encoder", LINES))
    builder.with_bucket_assigner(
        settings.pop("buckets", None) or BucketAssigner.base_path_bucket_assigner()
    )
    builder.with_rolling_policy(
        settings.pop("rolling", None) or RollingPolicy.on_checkpoint_rolling_policy()
    )
    builder.with_output_file_config(settings.pop("files", OutputFileConfig()))
    assert not settings
    return builder.build().create_function()


def walk(base: str) -> dict[str, bytes]:
    """The contents of all files below a directory, by their path from there."""
    system, top = file_system_of(base)

    def below(path: str) -> Iterator[str]:
        for status in system.list_directory(path):
            inner = join(path, status.name)
            if status.is_directory:
                yield from below(inner)
            else:
                yield inner

    return {path.removeprefix(top + "/"): system.read(path) for path in below(top)}


def is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def parts(base: str) -> dict[str, list[int]]:
    """The part files: what a reader sees."""
    files = {path: data for path, data in walk(base).items() if not is_hidden(path)}
    return {path: [int(line) for line in data.split()] for path, data in files.items()}


def hidden(base: str) -> list[str]:
    return [path for path in walk(base) if is_hidden(path)]


def records(base: str) -> list[int]:
    return sorted(record for lines in parts(base).values() for record in lines)


def test_a_part_file_appears_with_its_checkpoint(base: str) -> None:
    job = SinkEngine(sink(base))
    job.epoch(3)
    job.epoch(2, checkpoint=True)
    assert parts(base) == {}
    assert len(hidden(base)) == 2
    job.epoch(1, checkpoint=True)
    ((name, lines),) = parts(base).items()
    assert lines == [0, 1, 2, 3, 4]
    assert re.fullmatch(r"part-[0-9a-f]{16}-0-0", name)
    job.epoch(2)
    assert [name[-3:] for name in sorted(parts(base))] == ["0-0", "0-1"]
    job.finish()
    assert records(base) == list(range(8))
    assert hidden(base) == []


def test_nothing_but_part_files_is_left_at_the_end(local: str) -> None:
    job = SinkEngine(sink(local), parallelism=2)
    job.epoch(4, fates=[Killed(1), Lost()])
    job.epoch(4, fates=[Failed(1)], checkpoint=True)
    job.finish()
    assert all(path.name.startswith("part-") for path in Path(local).iterdir())
    assert records(local) == list(range(8))


def test_every_subtask_has_its_files(base: str) -> None:
    job = SinkEngine(sink(base), parallelism=3)
    job.epoch(7, checkpoint=True)
    job.epoch()
    found = {name.split("-")[2]: lines for name, lines in parts(base).items()}
    assert found == {"0": [0, 3, 6], "1": [1, 4], "2": [2, 5]}


def test_a_job_without_checkpoints_shows_accepted_epochs(base: str) -> None:
    job = SinkEngine(sink(base), checkpoints=False)
    job.epoch(3, fates=[Lost()])
    assert parts(base) == {}
    job.epoch(3, fates=[Lost(), Killed(1)])
    assert records(base) == [0, 1, 2]
    job.finish()
    assert records(base) == [0, 1, 2, 3, 4, 5]
    assert len(parts(base)) == 2
    assert hidden(base) == []


class ByParity(BucketAssigner):
    def bucket(self, record: Any, now_ms: int) -> str:
        return f"parity={record % 2}/minute={now_ms // 60_000}"


def test_buckets_are_directories(base: str) -> None:
    job = SinkEngine(sink(base, buckets=ByParity()))
    job.epoch(4)
    job.clock.advance("1 min")
    job.epoch(2, checkpoint=True)
    job.epoch()
    found = {path.rsplit("/", 1)[0]: lines for path, lines in parts(base).items()}
    assert found == {
        "parity=0/minute=0": [0, 2],
        "parity=1/minute=0": [1, 3],
        "parity=0/minute=1": [4],
        "parity=1/minute=1": [5],
    }


def test_buckets_by_the_hour(local: str) -> None:
    hours = BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd--HH", "UTC")
    job = SinkEngine(sink(local, buckets=hours))
    job.epoch(1)
    job.clock.advance("59 min")
    job.epoch(1)
    job.clock.advance("1 min")
    job.epoch(1)
    job.finish()
    found = {path.split("/")[0]: lines for path, lines in parts(local).items()}
    assert found == {"1970-01-01--00": [0, 1], "1970-01-01--01": [2]}


def test_names_begin_and_end_as_configured(base: str) -> None:
    files = OutputFileConfig.builder().with_part_prefix("out").with_part_suffix(".gz").build()
    job = SinkEngine(sink(base, files=files))
    job.epoch(1)
    job.epoch(1)
    job.finish()
    assert all(re.fullmatch(r"out-\w+-0-0\.gz", name) for name in parts(base))
    assert records(base) == [0, 1]


def test_part_files_are_split_by_size(local: str) -> None:
    rolling = RollingPolicy.default_rolling_policy(part_size=8)  # bytes: four lines
    job = SinkEngine(sink(local, rolling=rolling))
    job.epoch(9)
    job.epoch(1, checkpoint=True)
    job.epoch()
    assert [parts(local)[name] for name in sorted(parts(local))] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


def test_part_files_are_split_by_age_and_idleness(local: str) -> None:
    rolling = RollingPolicy.default_rolling_policy(1000, 5000, 2000)
    job = SinkEngine(sink(local, rolling=rolling))
    for pause in ("1 s", "1 s", "1 s", "1 s", "1 s", "2 s", "1 s"):
        job.epoch(1)
        job.clock.advance(pause)
    job.finish()
    assert [parts(local)[name] for name in sorted(parts(local))] == [
        [0, 1, 2, 3, 4],
        [5],
        [6],
    ]


def test_a_checkpoint_closes_all_files(local: str) -> None:
    job = SinkEngine(sink(local, rolling=RollingPolicy.default_rolling_policy()))
    for _ in range(3):
        job.epoch(2, checkpoint=True)
    job.finish()
    assert sorted(parts(local).values()) == [[0, 1], [2, 3], [4, 5]]


class Nothing(Encoder):
    def encode(self, value: Any) -> bytes:
        return b"" if value < 3 else b"%d\n" % value


def test_records_of_no_bytes_make_no_file(base: str) -> None:
    job = SinkEngine(sink(base, encoder=Nothing()))
    job.epoch(3, checkpoint=True)
    job.epoch()
    assert walk(base) == {}
    job.epoch(1)
    job.finish()
    assert records(base) == [3]


# --- failures ---------------------------------------------------------------------------------


@everywhere
def test_a_crash_between_checkpoint_and_publication(base: str) -> None:
    job = SinkEngine(sink(base), parallelism=2)
    job.epoch(4)
    job.epoch(4, checkpoint=True)
    job.restart(3)
    job.epoch()
    assert records(base) == list(range(8))
    assert len(parts(base)) == 2
    job.restart(1)
    job.epoch(2)
    job.finish()
    assert records(base) == list(range(10))
    assert hidden(base) == []


@everywhere
def test_what_killed_runs_left_is_swept_by_the_next_attempt(base: str) -> None:
    job = SinkEngine(sink(base), parallelism=2)
    job.epoch(4, checkpoint=True)
    job.epoch(4, fates=[Killed(1), Lost()])
    assert len(hidden(base)) >= 4
    job.restart()
    job.epoch()
    assert hidden(base) == []
    assert records(base) == [0, 1, 2, 3]


def test_an_attempt_that_starts_without_a_checkpoint_sweeps_too(base: str) -> None:
    job = SinkEngine(sink(base))
    job.epoch(4)
    job.restart()
    job.epoch()
    assert hidden(base) == []


def test_the_sweep_leaves_what_other_subtasks_will_publish(base: str) -> None:
    """Subtask 0 sweeps before the others have recovered, and while they write."""
    function = sink(base)
    job = SinkEngine(function, parallelism=2)
    job.epoch(4, checkpoint=True)
    job.restart()
    mine = PartFiles(function._place, attempt=1, subtask=1).open_segment(0)
    mine.write(b"9\n")
    mine.stream.close()
    job.epoch(fates=[Lost()])
    assert records(base) == [0, 1, 2, 3]
    assert [path.rsplit("/")[-1] for path in hidden(base)] == [mine.name]


def test_another_job_in_the_same_directory_is_left_alone(base: str) -> None:
    job, other = SinkEngine(sink(base)), SinkEngine(sink(base))
    other.epoch(2, checkpoint=True)
    job.epoch(2, checkpoint=True)
    job.restart()
    job.epoch(1)
    job.finish()
    other.epoch(1)
    other.finish()
    assert records(base) == [0, 0, 1, 1, 2, 2]


@pytest.fixture
def _old(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other programs have written counts as old at once."""
    monkeypatch.setattr("holdfast.datastream.connectors.files.part_files._OLD", -60_000)


@pytest.mark.usefixtures("_old")
@everywhere
def test_another_program_goes_on_from_a_checkpoint(base: str) -> None:
    """As when the driver was killed: another sink object, which learns of the old one's files."""
    job = SinkEngine(sink(base), parallelism=2)
    job.epoch(4, checkpoint=True)
    job.epoch(4, fates=[Killed(1)])
    job.restart(parallelism=1, function=sink(base))
    job.epoch(2)
    assert records(base) == [0, 1, 2, 3]
    assert len(hidden(base)) == 1
    job.finish()
    assert records(base) == [0, 1, 2, 3, 4, 5]
    assert hidden(base) == []


def test_a_savepoint_with_pending_part_files_needs_no_unpickling(tmp_path: Path) -> None:
    def job(restore: str | None = None) -> StreamExecutionEnvironment:
        configuration = Configuration({"execution.checkpointing.interval": "1 h"})
        if restore is not None:
            configuration.set_string("execution.state-recovery.path", restore)
        env = StreamExecutionEnvironment(configuration).set_parallelism(1)
        numbers = env.from_source(ScriptedSource([1, 2, EndOfEpoch(), 3])).uid("numbers")
        out = FileSink.for_row_format(str(tmp_path / "out"), LINES).build()
        numbers.sink_to(out).uid("files")
        return env

    with LocalExecutor(job()) as run:
        run.epoch()
        savepoint = run.savepoint(str(tmp_path / "elsewhere"))
    with LocalExecutor(job(savepoint)) as run:
        run.run_to_end()
    assert records(str(tmp_path / "out")) == [1, 2, 3]


def test_no_directory_is_left_by_an_earlier_program(local: str) -> None:
    job = SinkEngine(sink(local))
    job.epoch(2)
    job.epoch(2, checkpoint=True)
    job.restart(function=sink(local))
    job.finish()
    assert [path.name[:5] for path in Path(local).iterdir()] == ["part-"]


def test_a_sink_that_moved_publishes_what_is_at_the_old_place(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    job = SinkEngine(sink(old))
    job.epoch(2)
    job.epoch(2, checkpoint=True)
    job.restart(function=sink(new))
    job.epoch(2)
    job.finish()
    assert records(old) == [0, 1, 2, 3]
    assert records(new) == [4, 5]
    assert hidden(old) == []


def test_part_files_may_be_moved_away_once_they_are_there(
    local: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = SinkEngine(sink(local))
    job.epoch(2)
    job.epoch(2, checkpoint=True)
    job.epoch()
    for path in list(parts(local)):
        (Path(local) / path).unlink()
    job.restart()
    job.epoch(1)
    job.finish()
    assert records(local) == [4]
    assert "the job goes on, since it may have been published long ago" in caplog.text


def test_a_lost_segment_fails_the_commit(local: str) -> None:
    job = SinkEngine(sink(local))
    job.epoch(2, checkpoint=True)
    for path in hidden(local):
        (Path(local) / path).unlink()
    with pytest.raises(OperatorFailed, match=r"neither the part file '.*' nor its seg"):
        job.epoch()


def test_a_segment_that_is_lost_before_the_checkpoint_fails_the_checkpoint(local: str) -> None:
    job = SinkEngine(sink(local))
    job.epoch(2)
    for path in hidden(local):
        (Path(local) / path).unlink()
    with pytest.raises(MissingFileError, match=r"cannot sync '.*/\.holdfast-.*': FileNotFound"):
        job.epoch(checkpoint=True)


def test_a_second_segment_that_is_lost_or_changed_fails_the_commit(local: str) -> None:
    function = sink(local)
    job = SinkEngine(function)
    job.epoch(2)
    job.epoch(2, checkpoint=True)
    _, instance = job._living[0]
    (transaction,) = instance.function.pending_transactions()
    second = Path(local, f".holdfast-{function._place.sink}", transaction.parts[0].segments[1].name)
    second.write_text("1")
    with pytest.raises(OperatorFailed, match="have 5 bytes, and 8 were written; somebody has"):
        job.epoch()
    second.unlink()
    with pytest.raises(OperatorFailed, match="cannot read"):
        job.epoch()
    assert parts(local) == {}


def test_a_full_disk_names_the_file(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    job = SinkEngine(sink(local), stays=True)
    job.epoch()
    monkeypatch.setattr(LocalFileSystem, "open_output", lambda self, path: Full())
    with pytest.raises(FileSystemError, match=r"cannot write '.*': OSError: No space left on dev"):
        job.epoch(1)


# --- the place is checked before the first record -----------------------------------------------

SEEN: list[int] = []


def refused(base: str, message: str, **settings: str) -> None:
    """A job fails before its first record, with one error that names the directory."""
    SEEN.clear()
    configuration = Configuration({"execution.checkpointing.interval": "1 h", **settings})
    env = StreamExecutionEnvironment(configuration).set_parallelism(1)
    numbers = env.from_collection(range(3)).map(lambda n: SEEN.append(n) or n)
    numbers.sink_to(FileSink.for_row_format(base, LINES).build())
    with (
        pytest.raises(UserFunctionError, match=rf"(?s)\A[^\n]*{message}.*in open\(\)"),
        LocalExecutor(env) as run,
    ):
        run.run_to_end()
    assert SEEN == []
    configure({})


def test_a_bucket_that_is_not_there(s3: Any) -> None:
    expected = "cannot write part files to 's3a://no-such-bucket/out': .*NO_SUCH_BUCKET.*; let the"
    refused("s3a://no-such-bucket/out", expected, **s3.options)


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(str(tmp_path / "file/out"), "cannot write part files to '.*/file/out': NotADirectory")


def test_a_directory_of_another_user() -> None:
    user = os.geteuid()
    with common_place() as place:
        (place / "out").mkdir(0o555)
        job = SinkEngine(sink(str(place / "out")))
        try:
            if user == 0:
                os.seteuid(NOBODY)
            message = "cannot write part files to '.*/out': PermissionError.*; let the job's user"
            with pytest.raises(OperatorFailed, match=message):
                job.epoch(1)
        finally:
            os.seteuid(user)


def test_a_delta_table_is_no_place_for_part_files(tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    refused(str(tmp_path / "table"), "'.*/table' is a Delta table: its readers .*; use DeltaSink,")
    assert [path.name for path in (tmp_path / "table").iterdir()] == ["_delta_log"]


def test_the_check_leaves_nothing_and_is_made_once_per_attempt(
    local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    open_output = LocalFileSystem.open_output

    def noted(self: LocalFileSystem, path: str) -> Any:
        written.append(path)
        return open_output(self, path)

    monkeypatch.setattr(LocalFileSystem, "open_output", noted)
    job = SinkEngine(sink(local), parallelism=2)
    job.epoch()
    assert not Path(local).exists()
    job.epoch(checkpoint=True)
    assert len(written) == 1
    job.restart()
    job.epoch()
    assert len(written) == 2
    Path(local).mkdir()
    job.restart()
    job.epoch()
    assert [*Path(local).iterdir()] == []


def test_errors_of_the_encoder_are_the_users_own(local: str) -> None:
    class Broken(Encoder):
        def encode(self, value: Any) -> bytes:
            return b"%d" % (1 // value)

    with pytest.raises(ZeroDivisionError):
        SinkEngine(sink(local, encoder=Broken())).epoch(1)


# --- publishing, interrupted at every step ----------------------------------------------------


class Crash(BaseException):
    """The process dies here."""


class At:
    """Does something at the n-th call of the file system, before or after the call itself."""

    METHODS = ("open_output", "open_input", "move", "delete", "sync", "status")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, system: type[FileSystem]) -> None:
        self.count = 0
        self.turn = -1
        self.action: Callable[[], None] = lambda: None
        for name in self.METHODS:
            monkeypatch.setattr(system, name, self.wrap(getattr(system, name)))

    def arm(self, turn: int, action: Callable[[], None]) -> None:
        self.count, self.turn, self.action = 0, turn, action

    def wrap(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            self.tick()
            result = method(*args)
            self.tick()
            return result

        return call

    def tick(self) -> None:
        turn, self.count = self.count, self.count + 1
        if turn == self.turn:
            self.action()


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("segments", [1, 3])
def test_publishing_can_be_interrupted_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    at = At(monkeypatch, LocalFileSystem)
    for turn in range(1000):
        base = str(tmp_path / str(turn))
        files, transaction = written(base, segments)
        at.arm(turn, crash)
        try:
            files.publish(transaction)
        except Crash:
            at.arm(-1, crash)
            assert all(len(lines) == 2 * segments for lines in parts(base).values())
            files.publish(transaction)
        else:
            assert turn > 3
            return
        files.publish(transaction)
        assert list(parts(base).values()) == [list(range(2 * segments))]
        assert all(is_own(path) for path in hidden(base))
    pytest.fail("never came to an end")


def test_publishing_is_durable_step_by_step(local: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step relies on survives the machine before what it replaces is given up."""
    files, transaction = written(local, 2)
    names = {
        segment.name: f"segment {i}" for i, segment in enumerate(transaction.parts[0].segments)
    }
    steps = []

    def note(name: str) -> None:
        method = getattr(LocalFileSystem, name)

        def call(system: FileSystem, *args: Any) -> Any:
            paths = [path for arg in args for path in ([arg] if isinstance(arg, str) else arg)]
            steps.append((name, *(names.get(Path(p).name, Path(p).name[:4]) for p in paths)))
            return method(system, *args)

        monkeypatch.setattr(LocalFileSystem, name, call)

    for name in ("open_output", "move", "delete", "sync_files"):
        note(name)
    files.publish(transaction)
    assert steps == [
        ("open_output", ".0-0"),
        ("sync_files", ".0-0"),
        ("move", ".0-0", "segment 0"),
        ("sync_files", "segment 0"),
        ("delete", ".0-0"),
        ("delete", "segment 1"),
        ("move", "segment 0", "part"),
        ("sync_files", "part"),
    ]


@pytest.mark.parametrize("segments", [1, 3])
def test_two_processes_publish_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segments: int
) -> None:
    """A process that was taken for dead, and its successor, which overtakes it at every step."""
    at = At(monkeypatch, LocalFileSystem)
    for turn in range(1000):
        base = str(tmp_path / str(turn))
        files, transaction = written(base, segments)
        other = PartFiles(transaction.place, attempt=1, subtask=0)
        at.arm(turn, lambda: other.publish(transaction))  # noqa: B023
        files.publish(transaction)
        assert list(parts(base).values()) == [list(range(2 * segments))]
        if at.count <= turn:
            return
    pytest.fail("never came to an end")


def test_a_move_that_is_a_copy_can_be_interrupted(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.filesystem.arrow import ArrowFileSystem

    def move(self: Any, source: str, target: str) -> None:
        self._arrow.copy_file(source, target)
        raise Crash

    configure(s3.options)
    files, transaction = written(f"{s3.uri}/out", 1)
    with monkeypatch.context() as patch:
        patch.setattr(ArrowFileSystem, "move", move)
        with pytest.raises(Crash):
            files.publish(transaction)
    files.publish(transaction)
    assert list(parts(f"{s3.uri}/out").values()) == [[0, 1]]
    assert hidden(f"{s3.uri}/out") == []
    configure({})


def written(base: str, count: int) -> tuple[PartFiles, FileTransaction]:
    """A transaction of one part that is ready to be published: two lines per segment."""
    place = Place(base, "id")
    files = PartFiles(place, attempt=0, subtask=0)
    segments = []
    for number in range(count):
        segment = files.open_segment(0)
        data = b"%d\n%d\n" % (2 * number, 2 * number + 1)
        segment.size += segment.write(data)
        closed = files.close_segment(segment)
        assert closed is not None
        segments.append(closed)
    return files, FileTransaction(place, [Part("bucket", tuple(segments), "part")])


def is_own(path: str) -> bool:
    """Whether a file will be swept when the subtask that made it is closed."""
    return path.split("/")[-1].startswith(".0-0-")


# --- any history ------------------------------------------------------------------------------

FATES = st.one_of(
    st.builds(Killed, st.integers(0, 3)), st.builds(Failed, st.integers(0, 3)), st.builds(Lost)
)
EPOCHS = st.fixed_dictionaries(
    {
        "records": st.integers(0, 6),
        "fates": st.lists(FATES, max_size=2),
        "checkpoint": st.booleans(),
        "complete": st.sampled_from([True, False, None]),
        "stay": st.booleans(),
    }
)
RESTARTS = st.tuples(st.integers(1, 3), st.booleans())
ZOMBIES = st.integers(0, 20)
HISTORIES = st.lists(st.one_of(EPOCHS, EPOCHS, EPOCHS, RESTARTS, ZOMBIES), max_size=12)
POLICIES = st.sampled_from(
    [
        RollingPolicy.on_checkpoint_rolling_policy(),
        RollingPolicy.default_rolling_policy(part_size=6),
    ]
)


@settings(max_examples=40, deadline=None)
@given(history=HISTORIES, parallelism=st.integers(1, 3), rolling=POLICIES)
def test_any_history_shows_each_line_once(
    history: list[Any], parallelism: int, rolling: RollingPolicy
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = f"{folder}/out"

        def new() -> FileSinkFunction:
            return sink(base, rolling=rolling, buckets=ByParity())

        job = SinkEngine(new(), parallelism)
        for event in history:
            if isinstance(event, tuple):
                job.restart(event[0], new() if event[1] else None)
            elif isinstance(event, int):
                for zombie in job.zombies[event : event + 1]:
                    with contextlib.suppress(FileSystemError):  # it may fail, if it does no harm
                        zombie()
            else:
                job.epoch(**event)
            shown = records(base)
            assert len(shown) == len(set(shown)), "nothing is seen twice"
            assert set(shown) <= set(range(job.completed.position)), "nothing is seen too early"
        job.finish()
        assert records(base) == list(range(job.position)), "nothing is lost"


# --- the sink in a program --------------------------------------------------------------------


def test_settings_do_not_go_along_with_the_state(local: str) -> None:
    function = sink(local, encoder=Encoder.simple_string_encoder("latin-1"))
    copy = pickle.loads(cloudpickle.dumps(function))
    assert copy._place == function._place
    assert "_sink" not in copy.__getstate__()
    assert copy._encode("é") == b"\xe9\n"


def test_two_sinks_of_one_description_are_apart(local: str) -> None:
    described = FileSink.for_row_format(local, LINES).build()
    assert described.create_function()._place != described.create_function()._place


def test_a_relative_path_is_that_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert FileSink.for_row_format("out", LINES).build().base_path == str(tmp_path / "out")
    assert FileSink.for_row_format("file:///a%20b", LINES).build().base_path == "/a b"
    assert FileSink.for_row_format("s3a://b/out", LINES).build().base_path == "s3a://b/out"


def test_an_address_without_a_file_system_is_refused() -> None:
    with pytest.raises(ValueError, match="no file system for 'ftp://x/y'"):
        FileSink.for_row_format("ftp://x/y", LINES)


def test_the_sink_in_a_plan(env: StreamExecutionEnvironment, local: str) -> None:
    env.from_collection([1]).sink_to(FileSink.for_row_format(local, LINES).build())
    assert "Sink: Files" in env.explain()
    with pytest.raises(TypeError, match="expected a Sink or a DataFrameSink; got"):
        env.from_collection([1]).sink_to("nothing")  # type: ignore[arg-type]


def test_a_job_with_reruns_and_kills(env: StreamExecutionEnvironment, local: str) -> None:
    lines = FileSink.for_row_format(local, LINES)
    lines.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    env.from_collection(range(30)).rebalance().sink_to(lines.build())
    with LocalExecutor(env, quota=6, workers=2, seed=1) as run:
        run.epoch()
        assert parts(local) == {}
        run.epoch(rerun=True)
        assert records(local) == list(range(6))
        run.epoch(kill=True)
        run.run_to_end()
    assert records(local) == list(range(30))
    assert hidden(local) == []


def test_a_sweep_that_fails_is_told_and_does_not_fail_the_job(
    local: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: FileSystem, path: str) -> Any:
        raise FileSystemError(f"cannot list '{path}': PermissionError: not yours")

    job = SinkEngine(sink(local))
    job.epoch(2, checkpoint=True)
    job.epoch(2)
    job.restart()
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "list_directory", refuse)
        job.epoch()
    assert records(local) == [0, 1]
    assert "hidden files of an earlier run stay in" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.parametrize(
    ("place", "bucket", "segment", "name"),
    [
        ("../sink", "b", ".0-0-a", "part"),
        ("sink", "../..", ".0-0-a", "part"),
        ("sink", "b", "../../secret", "part"),
        ("sink", "b", ".0-0-a", "../part"),
        ("sink", "b", ".0-0-a", "a\0b"),
    ],
)
def test_saved_names_lead_nowhere_else(
    local: str, place: str, bucket: str, segment: str, name: str
) -> None:
    secret = Path(local).parent / "secret"
    secret.write_text("stays")
    files = PartFiles(Place(local, "sink"), attempt=1, subtask=0)
    forged = FileTransaction(Place(local, place), [Part(bucket, (Segment(segment, 5, 0),), name)])
    with pytest.raises(StateCorruptionError, match=r"saved state of a sink .* cannot be used"):
        files.publish(forged, may_be_gone=True)
    if name == "part" and bucket == "b":
        with pytest.raises(StateCorruptionError, match=r"saved state of a sink .* cannot be used"):
            files.discard(forged)
    assert secret.read_text() == "stays"
    assert [path.name for path in secret.parent.iterdir()] == ["secret"]


class Elsewhere(BucketAssigner):
    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    def bucket(self, record: Any, now_ms: int) -> str:
        return self._bucket


@pytest.mark.parametrize("bucket", ["../elsewhere", "a/../../b", ".", "line\nbreak"])
def test_a_record_cannot_choose_a_bucket_elsewhere(local: str, bucket: str) -> None:
    job = SinkEngine(sink(local, buckets=Elsewhere(bucket)))
    with pytest.raises(
        ValueError, match=r"a record has the bucket .* not the plain name of a file"
    ):
        job.epoch(1)
    assert not Path(local).exists()
