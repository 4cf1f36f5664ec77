"""Where sockets are, who can reach them, and when they go."""

from __future__ import annotations

import ipaddress
import os
import random
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from holdfast.common.options.ports import Ports
from holdfast.common.private import NotPrivateError, user_directory
from holdfast.errors import JobExecutionError
from holdfast.runtime.network.peers import connect, listen
from holdfast.runtime.network.sockets import (
    CannotListenError,
    check_room,
    ip_of,
    listen_at,
    own_ip,
    socket_path,
)
from tests.strangers import PATIENCE

LISTENS = """
import sys
from holdfast.runtime.network.sockets import listen_here
listener, directory = listen_here()
print(directory.path.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's directory with nothing in it, and with a short path on every system."""
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", path)
        yield Path(path)


def test_a_socket_is_in_the_users_directory_for_the_user_alone() -> None:
    with closing(listen(lambda line: None)) as listener:
        path = socket_path(listener.address.socket)
        assert path.parent.parent == user_directory()
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("depth", [2, 5])
def test_with_a_long_path_for_temporary_files_it_is_elsewhere(
    place: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(place.joinpath(*["x" * 50] * depth)))
    with closing(listen(lambda line: line.say("here"))) as listener:
        with closing(connect(listener.address, PATIENCE)) as line:
            assert line.hear(PATIENCE) == "here"
        directory = socket_path(listener.address.socket).parent.parent
    assert not directory.is_relative_to(place)
    assert directory.stat().st_uid == os.getuid()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_where_others_can_write_there_is_no_socket(place: Path) -> None:
    place.chmod(0o777)
    with pytest.raises(NotPrivateError, match="has mode 0777"):
        listen(lambda line: None)


def test_the_socket_of_a_process_that_was_killed_is_removed_by_the_next(place: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LISTENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    names = []
    for process in processes:
        assert process.stdout is not None
        names.append(process.stdout.readline().decode().strip())
    left = dict(zip(names, processes, strict=True))
    for name, process in left.items():
        process.kill()
        process.communicate()
        with closing(listen(lambda line: None)) as listener:
            names.remove(name)
            found = {path.name for path in place.iterdir()}
            assert found == {*names, listener.address.socket}


def test_the_address_for_other_hosts_is_one_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(listen(lambda line: line.say("here"), own_ip())) as listener:
        assert listener._socket.getsockname()[0] == own_ip()
        with closing(connect(listener.address, PATIENCE)) as line:
            assert line.hear(PATIENCE) == "here"
    assert not ipaddress.ip_address(own_ip()).is_unspecified
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.1.2.3")
    assert own_ip() == "10.1.2.3"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits of open files of this process, as far as it knows; the last one counts."""
    set_to = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda what: set_to[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda what, new: set_to.append(new))
    return set_to


def test_a_process_takes_as_many_open_files_as_it_may(limits: list[tuple[int, int]]) -> None:
    check_room(500, "slot 3")
    assert limits == [(1024, 4096)]
    check_room(1000, "slot 3")
    assert limits[-1] == (1200, 4096)


def test_more_connections_than_open_files_are_an_error_before_any_is_made(
    limits: list[tuple[int, int]],
) -> None:
    needs = r"slot 3 needs 5200 open files on host '.*' for its connections, and may have 4096; "
    with pytest.raises(JobExecutionError, match=needs + r"raise the limit \('ulimit -n'\), or"):
        check_room(5000, "slot 3")
    assert limits == [(1024, 4096)]


def taken_ports(number: int) -> Ports:
    """Ports in a row, all of which were free a moment ago."""
    while True:
        first = random.randrange(12_000, 30_000)
        with suppress(CannotListenError), ExitStack() as ports:
            for port in range(first, first + number):
                ports.enter_context(listen_at("127.0.0.1", Ports(port, port)))
            return Ports(first, first + number - 1)


def test_listeners_have_the_ports_of_the_range_and_then_there_is_none() -> None:
    ports = taken_ports(2)
    with ExitStack() as until_end:
        made = [until_end.enter_context(listen_at("127.0.0.1", ports)) for _ in ports]
        assert [listener.getsockname()[1] for listener in made] == list(ports)
        message = (
            rf"no port from {ports.first} to {ports.last} is free at 127.0.0.1 \(host '.*'\): set "
            "'holdfast.port.range' to a larger range"
        )
        with pytest.raises(CannotListenError, match=message):
            listen_at("127.0.0.1", ports)
        made[0].close()
        again = until_end.enter_context(listen_at("127.0.0.1", ports))
        assert again.getsockname()[1] == ports.first


def test_an_address_of_another_host_is_told() -> None:
    message = r"cannot listen at 192.0.2.1 on host '.*': .*; set 'spark.driver.bindAddress' for the"
    with pytest.raises(CannotListenError, match=message):
        listen_at("192.0.2.1")


def test_a_host_that_is_not_known_is_told_with_its_setting() -> None:
    assert ip_of("127.0.0.1", "spark.driver.host") == "127.0.0.1"
    assert ip_of("[::1]", "spark.driver.host", True) == "::1"
    message = (
        r"cannot resolve 'no-such.invalid', which is 'spark.driver.host': .*; set it to a name"
    )
    with pytest.raises(JobExecutionError, match=message):
        ip_of("no-such.invalid", "spark.driver.host")
