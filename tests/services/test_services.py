"""Real servers are there when a test wants them, and gone when it ends, however it ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from services import __main__ as services
from services.artifacts import Artifact, DigestError, UnavailableError, check_digests, fetched
from services.hbase import ARTIFACTS as HBASE
from services.process import JavaProcess, runs
from tests.kafka import Kafka

pytestmark = pytest.mark.spark

#: a Java process that lives until somebody ends it
WAITING = """
class Waiting {
    public static void main(String[] arguments) throws Exception {
        while (true) Thread.sleep(1000);
    }
}
"""


def test_a_broker_keeps_its_address_and_its_data_through_a_kill(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.produce(topic, ["before"])
    kafka.broker.kill()
    kafka.broker.start()
    kafka.produce(topic, ["after"])
    assert kafka.values(topic) == [b"before", b"after"]


def test_a_server_ends_with_the_process_that_started_it_even_if_that_is_killed(
    tmp_path: Path,
) -> None:
    (tmp_path / "Waiting.java").write_text(WAITING)
    script = (
        "import sys, pathlib, time\n"
        "from services.process import JavaProcess\n"
        f"process = JavaProcess(pathlib.Path({str(tmp_path)!r}), ['Waiting.java'], lambda: True)\n"
        "process.start()\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        server = int(starter.stdout.readline())
        assert runs(server, tmp_path)
        starter.kill()
    _wait_until_gone(server, tmp_path)


def test_what_runs_is_found_and_stopped_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    started: list[_Waiting] = []
    monkeypatch.setitem(services.SERVICES, "kafka", partial(_Waiting, started))
    assert services.main(["start", "kafka"]) == 0
    assert services.main(["start", "kafka"]) == 0
    assert services.main(["stop"]) == 0
    assert services.main(["status"]) == 0
    printed = capsys.readouterr().out.splitlines()
    where = [line.split(" in ")[1].rstrip(")") for line in printed if " in " in line]
    assert [line.split(" (")[0] for line in printed] == [
        "kafka: nowhere",
        "kafka: runs already",
        "kafka: nowhere",
        "kafka: stopped",
    ]
    assert not Path(where[0]).exists()
    (server,) = started
    server.processes[0].stop()


def test_what_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    with pytest.raises(UnavailableError, match=r"no nothing without nothing-0\.jar"):
        fetched("nothing", [Artifact("org.example.holdfast", "nothing", "0")])


def test_a_jar_that_is_not_the_expected_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_NEW_DIGESTS", raising=False)
    jar, digests = tmp_path / "server-1.jar", tmp_path / "digests.txt"
    jar.write_bytes(b"the server")
    digests.write_text(f"{sha256(b'the server').hexdigest()}  server-1.jar\n")
    check_digests([jar], digests)
    jar.write_bytes(b"something else")
    with pytest.raises(DigestError, match=r"server-1\.jar: expected SHA-256 [0-9a-f]{64}, found"):
        check_digests([jar], digests)
    unknown = jar.rename(tmp_path / "other-2.jar")
    with pytest.raises(DigestError, match=r"other-2\.jar: expected SHA-256 \(none is known\)"):
        check_digests([unknown], digests)
    monkeypatch.setenv("HOLDFAST_NEW_DIGESTS", "1")
    check_digests([unknown], digests)
    monkeypatch.delenv("HOLDFAST_NEW_DIGESTS")
    check_digests([unknown], digests)


def test_a_jar_that_was_changed_in_the_cache_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_NEW_DIGESTS", raising=False)
    (annotations,) = [found for found in HBASE if found.name == "audience-annotations"]
    try:
        (jar,) = fetched("annotations", [annotations], transitive=False)
    except UnavailableError as error:
        pytest.skip(str(error))
    jar.write_bytes(jar.read_bytes() + b"and more")
    with pytest.raises(DigestError, match=r"audience-annotations-0\.13\.0\.jar: expected SHA-256"):
        fetched("annotations", [annotations], transitive=False)


def test_every_pinned_package_has_its_hash() -> None:
    for name in ("constraints-build.txt", "constraints.txt", "constraints-docs.txt"):
        text = (Path(__file__).parents[2] / name).read_text()
        pins = re.split(r"^(?=[\w.-]+(?:\[[\w,-]+\])?==)", text, flags=re.MULTILINE)[1:]
        without = [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin]
        assert pins
        assert not without, f"{name}: run make lock"


class _Waiting:
    """A server without a server."""

    address = "nowhere"

    def __init__(self, started: list[_Waiting], folder: Path) -> None:
        started.append(self)
        folder.mkdir()
        (folder / "Waiting.java").write_text(WAITING)
        self.processes = [JavaProcess(folder, ["Waiting.java"], lambda: True)]

    def start(self, *, outlives: bool = False) -> None:
        self.processes[0].start(outlives=outlives)


def _wait_until_gone(pid: int, folder: Path) -> None:
    deadline = time.monotonic() + 600
    while runs(pid, folder):
        assert time.monotonic() < deadline, f"{pid} still runs, {os.getpid()} asked for its end"
        time.sleep(0.05)
