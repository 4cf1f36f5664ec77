"""A standalone cluster: what executors need to find the driver, each other and packages."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from importlib import metadata
from pathlib import Path

import pytest

from holdfast.common import Configuration
from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import JobExecutionError
from tests.standalone import PATIENCE, Standalone, standalone

pytestmark = [
    pytest.mark.spark,
    pytest.mark.matrix,
    pytest.mark.slow,
    pytest.mark.timeout(PATIENCE + 60),
]

#: keyed state and a source function
SUMS = """
import logging

from holdfast.datastream import SourceFunction, StreamExecutionEnvironment
from pyspark.sql import SparkSession


class Numbers(SourceFunction):
    def run(self, ctx):
        for number in range(100):
            ctx.collect(number)
        logging.warning("all sent")

    def cancel(self):
        pass


env = StreamExecutionEnvironment.get_execution_environment()
sums = env.add_source(Numbers(), "numbers").key_by(lambda n: n % 3).sum()
print(sorted(sums.execute_and_collect())[-3:], SparkSession.getActiveSession().sparkContext.master)
"""

#: prints the ports at which the process of a source function listens
LISTENERS = """
import json, os

from holdfast.datastream import SourceFunction, StreamExecutionEnvironment


def listening():
    files = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    own = {os.path.basename(file) for file in files}
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    listeners = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]
    return [int(row[1].split(":")[1], 16) for row in listeners]


class Ports(SourceFunction):
    def run(self, ctx):
        ctx.collect(listening())

    def cancel(self):
        pass


env = StreamExecutionEnvironment.get_execution_environment()
ports = env.add_source(Ports(), "ports").key_by(lambda each: each[0]).map(lambda each: each)
print(json.dumps(list(ports.execute_and_collect())))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def some_ports(number: int) -> range:
    """Ports that are free at every address; neither the system nor `free_port` deals them out."""
    while True:
        first = random.randrange(10_000, 15_000 - number)
        ports = range(first, first + number)
        with suppress(OSError), ExitStack() as listeners:
            for port in ports:
                listeners.enter_context(socket.create_server(("0.0.0.0", port)))
            return ports


def setting(ports: range) -> str:
    return f"holdfast.port.range={ports[0]}-{ports[-1]}"


@contextmanager
def relay(gate: str, target: str, ports: range) -> Iterator[list[int]]:
    """Pass connections on from one address to another, at the same ports; yields those used."""
    used: list[int] = []

    def carry(source: socket.socket, sink: socket.socket) -> None:
        with closing(source), closing(sink), suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)

    def accept(listener: socket.socket, port: int) -> None:
        with suppress(OSError):
            while True:
                came, _ = listener.accept()
                used.append(port)
                onward = socket.create_connection((target, port))
                for pair in ((came, onward), (onward.dup(), came.dup())):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    with ExitStack() as listeners:
        for port in ports:
            listener = listeners.enter_context(socket.create_server((gate, port)))
            listeners.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=accept, args=(listener, port), daemon=True).start()
        yield used


def test_a_job_on_a_master_and_a_worker(cluster: Standalone) -> None:
    folder = cluster.folder
    done = cluster.run(SUMS, f"holdfast.directory={folder / 'sums'}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"[1617, 1650, 1683] {cluster.address}\n"
    # the executor's own output is in a file of the worker's
    assert done.stderr.count("[Source: numbers #0] all sent\n") == 1
    # the executors have got the package from the driver
    assert list((folder / "work").rglob("holdfast.zip"))
    # and nothing is left, of that or of the job
    assert [*(folder / "user").iterdir(), *(folder / "sums").iterdir()] == []


def test_source_processes_listen_in_the_range(cluster: Standalone) -> None:
    ports = some_ports(100)
    settings = ("holdfast.engine=epochs", f"holdfast.directory={cluster.folder / 'shared'}")
    done = cluster.run(LISTENERS, setting(ports), *settings)
    assert done.returncode == 0, done.stdout + done.stderr
    ((port,),) = json.loads(done.stdout)
    assert port in ports


@pytest.mark.engine("resident")
def test_slots_listen_in_the_range_and_look_for_the_driver_at_its_host(
    cluster: Standalone,
) -> None:
    ports = some_ports(100)
    of_spark, of_holdfast = ports[:2], ports[2:]
    with relay("127.0.0.3", "127.0.0.1", ports) as used:
        done = cluster.run(
            LISTENERS,
            setting(of_holdfast),
            f"spark.driver.port={of_spark[0]}",
            f"spark.driver.blockManager.port={of_spark[1]}",
            "spark.driver.bindAddress=127.0.0.1",
            "spark.driver.host=127.0.0.3",
        )
    assert done.returncode == 0, done.stdout + done.stderr
    ((port,),) = json.loads(done.stdout)
    assert port in of_holdfast
    # the driver has the first ports of the range, at the address that it was told to bind to: at
    # the first one it is asked for files and sources, and slots call at the second one
    assert used.count(of_holdfast[1]) == 2
    assert of_spark[0] in used


def run_here(ports: range) -> str:
    """Run a job with two slots in the session of the tests; returns the error that it ends with."""
    configuration = Configuration({"holdfast.port.range": f"{ports[0]}-{ports[-1]}"})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    env.from_collection([1, 2]).key_by(abs).map(abs).print()
    with pytest.raises(JobExecutionError) as failed:
        env.execute()
    return str(failed.value)


def no_port(ports: range) -> str:
    return (
        rf"no port from {ports[0]} to {ports[-1]} is free at 127.0.0.1 \(host '.*'\): set "
        r"'holdfast.port.range' to a larger range$"
    )


@pytest.mark.usefixtures("spark")
@pytest.mark.engine("resident")
def test_a_driver_without_a_free_port_names_the_setting() -> None:
    ports = some_ports(1)
    with socket.create_server(("0.0.0.0", ports[0])):
        assert re.match(no_port(ports), run_here(ports))


@pytest.mark.usefixtures("spark")
@pytest.mark.engine("resident")
def test_a_slot_without_a_free_port_names_the_setting() -> None:
    ports = some_ports(2)  # for the driver, and one of the two slots
    message = run_here(ports)
    assert re.search(no_port(ports), message)
    assert len(message.splitlines()) == 1


# Executors that have nothing but Python and Java

#: what workers import; PySpark is Spark's own there
NEEDED = ("pyarrow", "pandas", "numpy", "msgspec", "cloudpickle", "rocksdict")
OF_PANDAS = ("python-dateutil", "six", "pytz", "tzdata")

#: uses a module, a package, a directory, an archive, a package that pip installs, and a file
PROGRAM = """
from holdfast.datastream import MapFunction, StreamExecutionEnvironment


class Uses(MapFunction):
    def open(self, context):
        import from_a_file, from_a_package, in_a_directory, sent.inside
        with open("data/value") as file:
            self.words = [from_a_file.WORD, from_a_package.WORD, file.read()]
        self.words += [sent.inside.WORD, in_a_directory.WORD]

    def map(self, value):
        import sys
        return [*self.words, sys.executable.split("/")[-3]]


env = StreamExecutionEnvironment.get_execution_environment()
for path in ("from_a_file.py", "sent", "directory"):
    env.add_python_file(path)
env.add_python_archive("data.zip", "data")
env.set_python_requirements("requirements.txt", "wheels")
words = env.from_collection([1, 2]).key_by(lambda each: each).map(Uses())
print(sorted(words.execute_and_collect()))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A cluster whose executors have no package, and a folder with what a program sends along."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("to hide packages from executors takes root and unshare (Linux)")
    folder = tmp_path_factory.mktemp("bare")
    (folder / "from_a_file.py").write_text("WORD = 'a module'")
    for place in ("sent", "directory"):
        (folder / place).mkdir()
    (folder / "sent/__init__.py").touch()
    (folder / "sent/inside.py").write_text("WORD = 'a module of a package'")
    (folder / "directory/in_a_directory.py").write_text("WORD = 'a module of a directory'")
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        archive.writestr("value", "an archive")
    (folder / "requirements.txt").write_text("from-a-package==1.0")
    (folder / "wheels").mkdir()
    with zipfile.ZipFile(folder / "wheels/from_a_package-1.0-py3-none-any.whl", "w") as wheel:
        about = "from_a_package-1.0.dist-info"
        wheel.writestr("from_a_package.py", "WORD = 'a package'")
        wheel.writestr(
            f"{about}/METADATA", "Metadata-Version: 2.1\nName: from-a-package\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    with standalone(folder, bare=True) as made:
        yield made


def packages() -> Iterator[tuple[Path, str]]:
    """Yield the files of what workers need, and where they are in a folder of packages."""
    for name in (*NEEDED, *OF_PANDAS):
        for file in metadata.distribution(name).files or ():
            if ".." not in file.parts and "tests" not in file.parts:
                yield Path(file.locate()), str(file)


def fill(place: Path) -> None:
    """Put what workers need into a virtual environment, as pip would."""
    (folder,) = place.glob("lib/python*/site-packages")
    for file, name in packages():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / name)


def packed(place: Path, archive: Path) -> None:
    """With nothing but Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (folder,) = place.glob("lib/python*/site-packages")
    with tarfile.open(archive, "w:gz", compresslevel=0) as file:
        file.add(place, ".")
        for path, name in packages():
            file.add(path, str(folder.relative_to(place) / name))


def packed_by_venv_pack(place: Path, archive: Path) -> None:
    tool = tool_or_skip("venv-pack")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    fill(place)
    subprocess.run([tool, "-q", "--compress-level", "0", "-p", place, "-o", archive], check=True)


def packed_by_uv(place: Path, archive: Path) -> None:
    tool = tool_or_skip("uv")
    relocatable = [tool, "venv", "-q", "--no-config", "--relocatable", "--python", sys.executable]
    subprocess.run([*relocatable, place], check=True)
    fill(place)
    with tarfile.open(archive, "w:gz", compresslevel=0) as file:
        file.add(place, ".")


def packed_by_conda_pack(place: Path, archive: Path) -> None:
    """With its own Python, as conda's environments have it; conda itself did not make this one.

    It is a copy of this Python, with a record of its files as conda keeps it.
    """
    tool = tool_or_skip("conda-pack")
    standard = Path(sysconfig.get_path("stdlib"))
    library, python = place / "lib" / standard.name, place / "bin" / standard.name
    left_out = ("site-packages", "dist-packages", "test", "__pycache__", "config-*")
    shutil.copytree(standard, library, ignore=shutil.ignore_patterns(*left_out))
    python.parent.mkdir()
    shutil.copy(os.path.realpath(sys.executable), python)
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        folder, name = map(sysconfig.get_config_var, ("LIBDIR", "INSTSONAME"))
        shutil.copy(Path(folder, name), place / "lib")
        # conda's Python finds its library beside itself, too
        found = os.fsencode(folder)
        beside = b"$ORIGIN/../lib".ljust(len(found), b"\0")
        assert len(beside) == len(found), "too short to be replaced in place"
        python.write_bytes(python.read_bytes().replace(found, beside))
    python.with_name("python").symlink_to(python.name)
    files = [str(file.relative_to(place)) for file in place.rglob("*") if not file.is_dir()]
    version = sysconfig.get_config_var("VERSION")
    record = {"name": "python", "version": version, "url": "", "link": {}, "files": files}
    (place / "conda-meta").mkdir()
    (place / "conda-meta/history").touch()
    (place / f"conda-meta/python-{version}-0.json").write_text(json.dumps(record))
    (library / "site-packages").mkdir()
    fill(place)
    subprocess.run([tool, "-q", "--compress-level", "0", "-p", place, "-o", archive], check=True)
    with tarfile.open(archive) as file:
        assert file.getmember(f"bin/{python.name}").isfile(), "the Python itself, not a link"


def tool_or_skip(name: str) -> str:
    """The path of a tool of the development environment; the matrix runs without it."""
    beside = os.path.dirname(sys.executable)
    found = shutil.which(name, path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath))))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.mark.parametrize("pack", [packed, packed_by_venv_pack, packed_by_uv, packed_by_conda_pack])
def test_packages_reach_executors_in_an_archive(
    bare: Standalone, tmp_path: Path, pack: Callable[[Path, Path], None]
) -> None:
    """On one engine: it is Spark that starts the interpreter of the archive."""
    archive = tmp_path / "environment.tar.gz"
    pack(tmp_path / "environment", archive)
    done = bare.run(
        PROGRAM,
        "holdfast.engine=resident",
        f"holdfast.directory={bare.folder / 'shared'}",
        f"spark.archives={archive}#environment",
        "spark.pyspark.python=./environment/bin/python",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    words = ["a module", "a package", "an archive", "a module of a package"]
    words += ["a module of a directory", "environment"]
    assert done.stdout == f"{[words] * 2}\n"


@pytest.mark.parametrize("engine", ["resident", "epochs"])
def test_an_executor_without_packages_is_told_in_one_line(bare: Standalone, engine: str) -> None:
    done = bare.run(
        PROGRAM,
        f"holdfast.engine={engine}",
        f"holdfast.directory={bare.folder / 'shared'}",
    )
    assert done.returncode == 1, done.stdout
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(r"the executors' Python has no module '\w+': send packages as an", last), last
    assert "Py4J" not in done.stderr
    assert "\tat " not in done.stderr
