"""``gs://`` and ``abfss://`` on emulators: the suite of all file systems, and what is their own."""

from __future__ import annotations

import base64
import contextlib
import hmac
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import msgspec
import pytest

from holdfast.filesystem import (
    FileSystemError,
    LockedError,
    configure,
    file_system_of,
    google,
    join,
)
from holdfast.filesystem.lease import Lease, LeaseTimes
from tests.conftest import Store
from tests.filesystem import test_file_systems as suite
from tests.filesystem.test_file_systems import Place, names, put
from tests.filesystem.test_lease import TIMES, Others
from tests.stores import (
    ACCOUNT,
    AZURE,
    HOST,
    KEY,
    azure_options,
    gs_options,
    new_store,
    skip_without_emulators,
)

skip_without_emulators()


@pytest.fixture(params=["gs", "abfss"])
def store(request: pytest.FixtureRequest) -> Store:
    return new_store(request.param)


@pytest.fixture
def place(store: Store) -> Place:
    return file_system_of(f"{store.uri}/top", store.options)


# The suite: all of its tests that take a place.
for _name, _test in vars(suite).items():
    if (
        _name.startswith("test_")
        and "place" in _test.__code__.co_varnames[: _test.__code__.co_argcount]
    ):
        globals()[_name] = _test


def test_a_directory_that_no_object_represents_is_listed(place: Place) -> None:
    """As other programs leave them, and sinks that write to directories by value."""
    system, top = place
    for path in ("day=1/a", "day=1/b", "day=2/hour=3/c", "file"):
        with system.open_output(join(top, path)) as out:
            out.write(b"1")
    assert [(status.name, status.is_directory) for status in system.list_directory(top)] == [
        ("day=1", True),
        ("day=2", True),
        ("file", False),
    ]
    assert names(system, join(top, "day=1")) == ["a", "b"]
    assert names(system, join(top, "day=2")) == ["hour=3"]
    assert names(system, top.partition("/")[0]) == ["top"]


def test_names_may_have_any_characters(place: Place) -> None:
    system, top = place
    strange = join(top, "city=Sao #1?;a%20b", "ü &+.txt")
    put(system, strange, b"1")
    assert system.read(strange) == b"1"
    assert names(system, top) == ["city=Sao #1?;a%20b"]
    assert names(system, strange.rpartition("/")[0]) == ["ü &+.txt"]


def test_a_file_appears_whole(place: Place) -> None:
    """Whoever looks at any moment finds the old or the new contents, never an empty file."""
    system, top = place
    path = join(top, "file")
    put(system, path, b"0" * 100)
    ended = threading.Event()
    found: set[bytes] = set()

    def look() -> None:
        while not ended.is_set():
            found.add(system.read(path))

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(100):
        system.write(path, str(number % 10).encode() * 100)
    ended.set()
    reader.join()
    assert found <= {str(digit).encode() * 100 for digit in range(10)}


class NoCopies:
    """A file system of pyarrow that makes no copies."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def copy_file(self, *_: object) -> None:
        suite.refuse()


def test_a_write_to_azure_that_fails_leaves_no_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store("abfss")
    system, top = file_system_of(f"{store.uri}/top", store.options)
    system.make_directories(top)
    monkeypatch.setattr(system, "_client", NoCopies(cast(Any, system)._client))
    with pytest.raises(FileSystemError, match="no space"):
        system.write(join(top, "x"), b"1")
    monkeypatch.undo()
    assert names(system, top) == []
    draft = join(top, ".x.0.tmp")
    put(system, join(draft, "x"), b"1")
    assert names(system, top) == [".x.0.tmp"]
    system.delete(draft)
    assert names(system, top) == []


def test_a_write_that_does_not_end_leaves_no_file_of_that_name(
    store: Store, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(WRITES_AND_DIES)
    options = msgspec.json.encode(store.options).decode()
    run = subprocess.run([sys.executable, str(program), store.uri, options], check=False)
    assert run.returncode == -9
    system, top = file_system_of(store.uri, store.options)
    assert not system.exists(join(top, "x"))


WRITES_AND_DIES = """
import json, os, signal, sys
from holdfast.filesystem import file_system_of, join

system, top = file_system_of(sys.argv[1], json.loads(sys.argv[2]))
opened = system._open

class Dying:
    def __init__(self, path):
        self.file = opened(path)
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass
    def write(self, data):
        os.kill(os.getpid(), signal.SIGKILL)

system._open = Dying
system.write(join(top, "x"), b"data")
"""


# The lock.


def test_whoever_renews_the_lock_has_it(place: Place) -> None:
    system, top = place
    path = join(top, "lock")
    lock = system.lock(path, b"first")
    second = Others(lock.renew)  # type: ignore[attr-defined]
    with pytest.raises(LockedError) as error:
        Lease(system, path, b"second", TIMES, second.sleep)
    assert error.value.holder == b"first"
    lock.release()
    assert not system.exists(path)
    system.lock(path, b"second").release()


def test_a_lock_is_not_taken_from_a_holder_that_writes_it_all_the_time(place: Place) -> None:
    """Whoever looks while it is written must not take it for free, or for a broken store."""
    system, top = place
    path = join(top, "lock")
    first = Lease(system, path, b"first", LeaseTimes(renewal=0.001, lease=3600, look=0.001))
    for _ in range(30):
        with pytest.raises(LockedError):
            Lease(system, path, b"second", LeaseTimes(renewal=1, lease=3600, look=0.005))
        assert first.is_held()
    first.release()


def test_of_several_that_take_the_lock_at_once_one_keeps_it(place: Place) -> None:
    system, top = place
    for turn in range(10):
        path = join(top, f"lock-{turn}")
        start = threading.Barrier(4)
        taken: list[Lease] = []

        def take(name: bytes) -> None:
            start.wait()  # noqa: B023
            with contextlib.suppress(LockedError, FileSystemError):
                taken.append(Lease(system, path, name, TIMES, lambda _: None))  # noqa: B023

        threads = [threading.Thread(target=take, args=(b"%d" % name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(lease.is_held() for lease in taken) == 1
        for lease in taken:
            lease.release()
        assert not system.exists(path)


# What is wrong is told.


def told(uri: str, options: dict[str, str]) -> str:
    """Return what a job that uses an address is told first."""

    def use() -> None:
        system, path = file_system_of(uri, options)
        system.make_directories(path)

    with pytest.raises(FileSystemError) as error:
        use()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_no_bucket_is_made(store: Store) -> None:
    missing = store.uri.replace("holdfast-", "no-such-")
    kind = "bucket" if missing.startswith("gs") else "container"
    for path in ("", "/a", "/a/b"):
        assert f"there is no {kind} 'no-such-" in told(f"{missing}{path}", store.options)
    system, path = file_system_of(missing, store.options)
    assert not system.exists(path)


@pytest.fixture
def refusing() -> Iterator[str]:
    """A server that refuses everybody."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(401)
            self.send_header("content-length", "0")
            self.end_headers()

        do_POST = do_PUT = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_refused_credentials_of_google(refusing: str) -> None:
    message = told("gs://bucket/x", gs_options(refusing))
    assert "UNAUTHENTICATED" in message
    assert "check fs.gs.auth.service.account.json.keyfile, or the environment" in message


def test_a_key_file_of_google_that_is_not_there(refusing: str, tmp_path: Path) -> None:
    options = {
        "fs.gs.storage.root.url": refusing,
        "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
        "fs.gs.auth.service.account.json.keyfile": str(tmp_path / "no.json"),
    }
    message = told("gs://bucket/x", options)
    assert f"Cannot open credentials file {tmp_path / 'no.json'}; check fs.gs.auth" in message


def test_a_wrong_key_of_azure() -> None:
    wrong = azure_options(key=KEY.replace("Eby", "Abc"))
    message = told(f"abfss://box@{HOST}/x", wrong)
    assert "AuthorizationFailure: 403 Server failed to authenticate" in message
    assert message.endswith(f"; check fs.azure.account.key.{HOST}")


def signed(key: str) -> str:
    """Return a SAS token for everything in the account, for an hour."""
    form, hour = "%Y-%m-%dT%H:%M:%SZ", timedelta(hours=1)
    now = datetime.now(UTC)
    fields = {"sp": "rwdlacup", "ss": "b", "srt": "sco"}
    fields |= {"st": (now - hour).strftime(form), "se": (now + hour).strftime(form)}
    fields |= {"spr": "https,http", "sv": "2021-10-04"}
    order = ("sp", "ss", "srt", "st", "se", "", "spr", "sv", "", "")
    text = "\n".join([ACCOUNT, *(fields.get(name, "") for name in order)])
    digest = hmac.digest(base64.b64decode(key), text.encode(), "sha256")
    return urlencode({**fields, "sig": base64.b64encode(digest).decode()})


@pytest.mark.parametrize("first", ["", "?"])
def test_a_sas_token_of_azure(first: str) -> None:
    options = {"fs.azure.abfs.endpoint": AZURE, "fs.azure.sas.fixed.token": first + signed(KEY)}
    system, top = file_system_of(f"{new_store('abfss').uri}/top", options)
    put(system, join(top, "x"), b"1")
    system.move(join(top, "x"), join(top, "y"))
    assert system.read(join(top, "y")) == b"1"
    # NB: Azurite cannot delete several files with such a token, and so not a draft
    assert [name for name in names(system, top) if not name.endswith(".tmp")] == ["y"]


def test_a_wrong_sas_token_of_azure_is_in_no_message() -> None:
    token = signed(KEY.replace("Eby", "Abc"))
    options = {"fs.azure.abfs.endpoint": AZURE, "fs.azure.sas.fixed.token": token}
    assert told(f"abfss://box@{HOST}/x", options).endswith("; check fs.azure.sas.fixed.token")
    system, path = file_system_of(f"abfss://box@{HOST}/x", options)
    system._is_checked = True  # type: ignore[attr-defined]
    with pytest.raises(FileSystemError, match="403") as error:
        system.read(path)
    trace = "".join(traceback.format_exception(error.value))
    assert "?se=" in trace or "&se=" in trace, "the address is there"
    assert token.rpartition("sig=")[2] not in trace
    assert "sig=******" in trace


def test_an_account_of_azure_that_does_not_exist() -> None:
    options = {**azure_options(), "fs.azure.account.key": KEY}
    message = told("abfss://box@other.dfs.core.windows.net/x", options)
    assert "check the account 'other' in the address" in message


@pytest.mark.parametrize("call", ["read", "exists"])
def test_missing_credentials_of_azure_do_not_end_the_process(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://127.0.0.1:1/")
    options = {
        **azure_options(),
        "fs.azure.account.auth.type": "OAuth",
        "fs.azure.account.oauth2.client.id": "ann",
        "fs.azure.account.oauth2.client.secret": "secret",
        "fs.azure.account.oauth2.client.endpoint": "https://127.0.0.1:1/tenant/oauth2/token",
    }
    system, _ = file_system_of(f"abfss://box@{HOST}", options)
    remedy = "check fs.azure.account.oauth2.client.id and fs.azure.account.oauth2.client.secret"
    with pytest.raises(FileSystemError, match=remedy):
        getattr(system, call)("box")


@pytest.mark.parametrize("kind", ["gs", "abfss"])
def test_a_server_that_does_not_answer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(google, "_LONGEST", timedelta(seconds=2))
    gone = "http://127.0.0.1:1"
    uri = f"gs://{uuid.uuid4().hex}/x" if kind == "gs" else f"abfss://box@{HOST}/x"
    options = gs_options(gone) if kind == "gs" else azure_options(gone)
    started = time.monotonic()
    message = told(uri, options)
    assert time.monotonic() - started < 60
    name = "fs.gs.storage.root.url" if kind == "gs" else "fs.azure.abfs.endpoint"
    assert "Could not connect to server; check the network" in message
    assert message.endswith(f"{name} if it is set")


def test_settings_of_the_process_are_used_where_none_are_given(store: Store) -> None:
    configure(store.options)
    try:
        system, path = file_system_of(f"{store.uri}/x")
        system.write(path, b"1")
        assert file_system_of(f"{store.uri}/x", store.options)[0].read(path) == b"1"
    finally:
        configure({})
