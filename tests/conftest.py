"""Fixtures that all tests share: an environment, and the two executors of a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import pytest
from hypothesis import settings

from holdfast.common.options.engine import ENGINE, ENGINE_VARIABLE, EngineSetting
from holdfast.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from holdfast.testing import LocalExecutor, collect, run_locally
from services.process import free_port
from tests.crashing import every_epoch_is_lost_once

if TYPE_CHECKING:
    from tests.hbase import Tables
    from tests.hdfs import Hdfs
    from tests.kafka import Kafka

ROOT = Path(__file__).parents[1]
#: they start first, in this order; the others that are marked as slow follow
LONGEST_FILES = (
    "tests/spark/test_crash_at_every_step.py",
    "tests/spark/test_host_faults.py",
    "tests/spark/test_getting_there.py",
    "tests/connectors/hbase/test_kafka_to_hbase.py",
    "tests/spark/test_hosts_epochs.py",
    "tests/spark/test_yarn.py",
    "tests/spark/test_jvm_death.py",
    "tests/spark/test_hosts.py",
    "tests/simulation/test_seeds.py",
    "tests/spark/test_kill_series.py",
)
#: for a job in this process, on a machine that is slow and busy
JOB_SECONDS = 600.0
#: HBase takes longest to start
TOGETHER = "tests/connectors/hbase/"
REWRITE_GOLDEN = "--rewrite-golden"
SEED = "--seed"

# how long an example takes says nothing on a busy machine
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        REWRITE_GOLDEN, action="store_true", help="write golden files anew instead of comparing"
    )
    parser.addoption(
        SEED, type=int, action="append", help="a seed of the simulation to live through, alone"
    )


def pytest_configure() -> None:
    """Let the processes that tests start be interrupted.

    What a shell starts in the background ignores SIGINT, and so would they.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what would be the same again: `every_epoch_is_lost_once` does nothing on Spark.

    And of a test that is about one engine, in a file whose tests run on both, the other run.
    Files that take long come first, so that no process is left alone with one in the end.
    """
    kept = [item for item in items if not (_is_disturbed(item) or _is_of_another_engine(item))]
    marked = {
        mark: {item.path for item in kept if item.get_closest_marker(mark)}
        for mark in ("slow", "spark")
    }
    ranks = {ROOT / name: rank for rank, name in enumerate(LONGEST_FILES)}

    def place(item: pytest.Item) -> tuple[int, bool, bool]:
        rank = ranks.get(item.path, len(ranks))
        return rank, item.path not in marked["slow"], item.path not in marked["spark"]

    kept.sort(key=place)
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run all files of a folder whose server takes long to start."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return TOGETHER if nodeid.startswith(TOGETHER) else super()._split_scope(nodeid)

    return Scheduling(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    """If there is a test that may start a driver of its own, such drivers start quickly."""
    if any(_is_on_spark(item) for item in session.items):
        from tests.jvm import start_quickly

        start_quickly()


def _is_crashing(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("disturbance") == "crashing"


def _is_disturbed(item: pytest.Item) -> bool:
    """Whether a test is to be disturbed in an executor that takes no notice of it."""
    call = getattr(item, "callspec", None)
    others = call is not None and call.params.get("executor") in ("threads", "local")
    return _is_crashing(item) and (others or _is_on_spark(item))


def _is_of_another_engine(item: pytest.Item) -> bool:
    mark, call = item.get_closest_marker("engine"), getattr(item, "callspec", None)
    return (
        mark is not None
        and call is not None
        and call.params.get("engine", mark.args[0]) != mark.args[0]
    )


def _is_on_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None


@pytest.fixture(scope="session", autouse=True)
def _no_power_cuts() -> Iterator[None]:
    """Let nothing wait for the disk in this process: no test cuts the power, and many write."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _jobs_have_time() -> Iterator[None]:
    """Wait longer for jobs in this process than users do: the machine may be slow and busy."""
    with pytest.MonkeyPatch.context() as patch:
        for method in (LocalExecutor.run_to_end, LocalExecutor.run_until):
            patch.setattr(method, "__defaults__", (JOB_SECONDS,))
        for function in (collect, run_locally):
            patch.setattr(function, "__kwdefaults__", {"timeout": JOB_SECONDS})
        yield


@pytest.fixture(autouse=True)
def chosen_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test marked with an engine run its jobs on that one, those of its programs too."""
    mark = request.node.get_closest_marker("engine")
    if mark is not None:
        monkeypatch.setenv(ENGINE_VARIABLE, mark.args[0])


@pytest.fixture(params=["resident", "epochs"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two engines on Spark, for a test that is to hold on both."""
    monkeypatch.setenv(ENGINE_VARIABLE, request.param)
    return str(request.param)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    """An environment of parallelism 2, with short epochs."""
    environment = StreamExecutionEnvironment.get_execution_environment()
    return environment.set_parallelism(2).set_buffer_timeout(10)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place for the files of all tests of a module."""
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where servers of a module are registered, and no others."""
    path = tmp_path_factory.mktemp("runtime")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_RUNTIME_DIR", str(path))
        yield path


class Executor(Protocol):
    """What a semantic test needs of an executor; the same test runs in both."""

    def collect(self, stream: DataStream | KeyedStream) -> list[Any]:
        """Run the stream's job to its end and return the stream's records."""

    def run(self, environment: StreamExecutionEnvironment) -> None:
        """Run what the environment holds, to its end."""


class InProcess:
    """A hard life: small epochs, a change of worker with each of them, blocks in any order."""

    def collect(self, stream: DataStream | KeyedStream) -> list[Any]:
        return self._run(stream).records

    def run(self, environment: StreamExecutionEnvironment) -> None:
        self._run(environment)

    def _run(self, job: StreamExecutionEnvironment | DataStream | KeyedStream) -> LocalExecutor:
        with LocalExecutor(job, quota=3, workers=2, seed=7) as run:
            run.run_to_end()
        return run


class InThreads:
    """The resident engine with slots in threads of this process, which only Spark is missing to."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def collect(self, stream: DataStream | KeyedStream) -> list[Any]:
        from tests.runtime.resident.threads import start

        return list(start(stream, self._scratch).records)

    def run(self, environment: StreamExecutionEnvironment) -> None:
        from tests.runtime.resident.threads import start

        start(environment, self._scratch).wait()


class Locally:
    """The local engine, which users can choose, with its functions in this thread."""

    def collect(self, stream: DataStream | KeyedStream) -> list[Any]:
        self._choose(stream._environment)
        return list(stream.execute_and_collect())

    def run(self, environment: StreamExecutionEnvironment) -> None:
        self._choose(environment)
        environment.execute()

    def _choose(self, environment: StreamExecutionEnvironment) -> None:
        ENGINE.put(environment._configuration, EngineSetting.LOCAL)
        environment.set_default_local_parallelism(2)


class OnSpark:
    """The real thing."""

    def collect(self, stream: DataStream | KeyedStream) -> list[Any]:
        return list(stream.execute_and_collect())

    def run(self, environment: StreamExecutionEnvironment) -> None:
        environment.execute()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local Spark session for all tests: as on two cores, tasks tried up to four times."""
    from holdfast.spark.session import get_session, local_settings

    session = get_session("holdfast-tests", local_settings(cores=2, slots=8))
    yield session
    session.stop()


@pytest.fixture
def in_process() -> Executor:
    """Runs a job in this process only, for tests that would learn nothing new from Spark."""
    return InProcess()


@pytest.fixture(
    params=["in-process", "threads", "local", pytest.param("spark", marks=pytest.mark.spark)]
)
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Executor:
    """Runs a job in this process, on both engines; and in another run of the test on Spark."""
    if request.param == "in-process":
        return InProcess()
    if request.param == "threads":
        return InThreads(tmp_path)
    if request.param == "local":
        return Locally()
    request.getfixturevalue("spark")
    return OnSpark()


class Store(NamedTuple):
    """A place of its own for a test on another machine, and Hadoop's settings to get there."""

    uri: str
    options: dict[str, str]


#: a bucket
S3 = Store


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3-compatible server.

    It is a process of its own: pyarrow holds the interpreter's lock while it ends a stream that
    nobody has closed, and a server in this process could not answer it.
    """
    pytest.importorskip("moto.server", reason="needs the packages of holdfast[dev]")
    port = free_port()
    command = [sys.executable, "-m", "tests.store", "127.0.0.1", str(port)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield f"http://127.0.0.1:{port}"
        server.kill()


@pytest.fixture
def s3(s3_server: str) -> S3:
    """A new bucket."""
    from pyarrow.fs import S3FileSystem

    bucket = f"bucket-{uuid.uuid4().hex}"
    S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=s3_server,
        region="us-east-1",
        allow_bucket_creation=True,
    ).create_dir(bucket)
    options = {
        "fs.s3a.endpoint": s3_server,
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }
    return S3(f"s3a://{bucket}", options)


@pytest.fixture(scope="module", params=["undisturbed", "crashing"])
def disturbance(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the tests of a module that uses it twice, the second time with crashes everywhere."""
    if request.param == "undisturbed":
        yield
    else:
        with every_epoch_is_lost_once():
            yield


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A real HDFS, in a process of its own."""
    from services.artifacts import UnavailableError
    from tests.hdfs import running

    try:
        with running(tmp_path_factory.mktemp("hdfs")) as addresses:
            yield addresses
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def hdfs(hdfs_server: Hdfs) -> str:
    """The address of a real HDFS."""
    return hdfs_server.rpc


@pytest.fixture
def webhdfs(hdfs_server: Hdfs) -> str:
    """The address of the same HDFS over HTTP."""
    return hdfs_server.http


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=pytest.mark.spark)])
def store(request: pytest.FixtureRequest) -> Store:
    """A bucket, and a directory of HDFS, for a test that is to hold on both."""
    if request.param == "s3":
        return cast(Store, request.getfixturevalue("s3"))
    return Store(f"{request.getfixturevalue('hdfs')}/{uuid.uuid4().hex}", {})


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A real Kafka broker; a test that ends it starts it again."""
    from services.artifacts import UnavailableError
    from tests.kafka import running

    try:
        with running(tmp_path_factory.mktemp("services") / "kafka") as broker:
            yield broker
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    """A real HBase; a test that ends it starts it again."""
    from services.artifacts import UnavailableError
    from tests.hbase import running

    try:
        with running(tmp_path_factory.mktemp("services") / "hbase") as tables:
            yield tables
    except UnavailableError as error:
        pytest.skip(str(error))
