"""Who may connect to a process of a job, and what all others can do there: nothing, to nobody."""

from __future__ import annotations

import os
import pickle
import resource
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from holdfast.runtime.network import handshake, peers
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.handshake import PeerError, admit
from holdfast.runtime.network.peers import Line, connect, listen
from holdfast.runtime.network.sockets import listen_here, socket_path
from tests.another_user import as_root
from tests.strangers import PATIENCE, STRANGERS, is_closed_to_others, knock, silent

ROOT = Path(__file__).parents[2]
WRONG_KEY = "ab" * 32


class Process:
    """See `peer_process`."""

    def __init__(self, host: str, log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.runtime.peer_process", host],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.address = msgspec.json.decode(self._answer(), type=Address)

    def order(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n".encode())
        self._process.stdin.flush()
        assert self._answer() == b"done\n"

    def _answer(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


HOSTS = [pytest.param("", id="unix"), pytest.param("127.0.0.1", id="ip")]


@pytest.fixture(scope="module", params=HOSTS)
def process(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    """One for all of a module: what one test did to it must not matter to the next."""
    started = Process(request.param, tmp_path_factory.mktemp("peer") / "log")
    yield started
    started.kill()


def assert_that_a_peer_gets_in(address: Address) -> None:
    with closing(connect(address, PATIENCE)) as line:
        line.say(("how", "are", "you"))
        assert line.hear(PATIENCE) == ("how", "are", "you")


@pytest.mark.parametrize("behave", STRANGERS, ids=lambda behave: behave.__name__)
def test_a_stranger_keeps_nobody_out(
    process: Process, behave: Callable[[socket.socket], None]
) -> None:
    with ExitStack() as open_ones:
        for _ in range(3):
            behave(open_ones.enter_context(knock(process.address)))
        assert_that_a_peer_gets_in(process.address)
    assert_that_a_peer_gets_in(process.address)


@pytest.fixture
def _many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_descriptors")
def test_500_silent_strangers_keep_nobody_out(process: Process) -> None:
    """More of them than are borne: who has waited longest goes."""
    with ExitStack() as open_ones:
        strangers = [open_ones.enter_context(knock(process.address)) for _ in range(500)]
        assert_that_a_peer_gets_in(process.address)
        dropped = strangers[: 500 - peers._STRANGERS]
        assert {stranger.recv(1) for stranger in dropped} == {b""}
        assert_that_a_peer_gets_in(process.address)


@pytest.mark.parametrize("host", HOSTS)
def test_without_a_descriptor_left_it_waits_and_goes_on(host: str, tmp_path: Path) -> None:
    process = Process(host, tmp_path / "log")
    for _ in range(2):
        process.order("take all descriptors")
        with ExitStack() as open_ones:
            open_ones.enter_context(knock(process.address))
            while "cannot accept connections" not in process.log:
                threading.Event().wait(0.01)
            process.order("give them back")
            assert_that_a_peer_gets_in(process.address)
    process.kill()
    assert process.log.count("cannot accept connections") == 1
    assert "Too many open files" in process.log


def test_a_handshake_that_is_sent_again_opens_nothing(process: Process) -> None:
    key, nonce = bytes.fromhex(process.address.key), os.urandom(32)
    with knock(process.address) as rightful:
        rightful.sendall(nonce)
        theirs = rightful.recv(32, socket.MSG_WAITALL)
        proof = handshake._proof(key, b"client", nonce + theirs)
        rightful.sendall(proof)
        answer = handshake._proof(key, b"server", nonce + theirs)
        assert rightful.recv(32, socket.MSG_WAITALL) == answer
    with knock(process.address) as replayed:
        replayed.sendall(nonce + proof)
        assert replayed.recv(32, socket.MSG_WAITALL) != theirs
        assert replayed.recv(1) == b"", "it hung up"


def test_a_proof_that_is_sent_back_opens_nothing() -> None:
    """Who does not have the key lets a client prove that it has, and shows the server that."""
    client, server = socket.socketpair()
    with client, server:
        server.sendall(bytes(32))  # the nonce of the one that has no key
        thread = threading.Thread(target=lambda: server.sendall(_proof_of(server)))
        thread.start()
        with pytest.raises(PeerError, match="does not have the key"):
            handshake.introduce(client, bytes(32), time.monotonic() + PATIENCE)
        thread.join()


def _proof_of(server: socket.socket) -> bytes:
    return server.recv(64, socket.MSG_WAITALL)[32:]


def test_a_peer_with_another_key_is_not_let_in(process: Process) -> None:
    other = msgspec.structs.replace(process.address, key=WRONG_KEY)
    with pytest.raises(PeerError, match="no process answers at"):
        connect(other, 0.2)
    assert_that_a_peer_gets_in(process.address)


class Trap:
    """Tells, when it is unpickled."""

    sprung = False

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _spring, ()


def _spring() -> None:
    Trap.sprung = True


def test_nothing_of_a_process_without_the_key_is_unpickled() -> None:
    trap = pickle.dumps(Trap())

    def pretend() -> None:
        connection, _ = impostor.accept()
        with connection:
            connection.sendall(bytes(64) + peers._SIZES.pack(0, len(trap)) + trap)
            connection.recv(64, socket.MSG_WAITALL)

    impostor, directory = listen_here()
    with impostor, directory:
        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(PeerError, match="does not have the key"):
            connect(Address(WRONG_KEY, directory.path.name), PATIENCE)
        thread.join()
    assert not Trap.sprung
    pickle.loads(trap)
    assert Trap.sprung


@pytest.mark.parametrize("queue", [0, 1], ids=["backlog", "full backlog"])
def test_a_process_that_does_not_answer_is_waited_for_no_longer_than_told(queue: int) -> None:
    deaf, directory = listen_here()
    address = Address(WRONG_KEY, directory.path.name)
    with directory:
        with deaf, ExitStack() as before:
            deaf.listen(0)
            if queue:
                before.enter_context(knock(address))
            with pytest.raises(PeerError, match=f"no process answers at {address}"):
                connect(address, 0.2)
        with pytest.raises(PeerError, match="Connection refused"):
            connect(address, PATIENCE)
    with pytest.raises(PeerError, match="No such file"):
        connect(address, PATIENCE)


def test_a_stranger_that_is_slow_is_dropped_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often it says something: time passes with each byte of its nonce."""
    stranger, server = socket.socketpair()
    now = iter(range(100))

    def clock() -> float:
        stranger.send(b"x")
        return float(next(now))

    # not `time.monotonic` itself, which threads of other tests may call
    monkeypatch.setattr(handshake, "time", SimpleNamespace(monotonic=clock))
    with stranger, server, pytest.raises(TimeoutError):
        admit(server, bytes(32), 20.0)
    assert next(now) == 21


def test_a_silent_stranger_is_dropped_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_DEADLINE", 0.1)
    with closing(listen(lambda line: None)) as listener, knock(listener.address) as stranger:
        assert stranger.recv(1) == b""


def test_a_message_takes_no_memory_before_it_comes() -> None:
    one, other = socket.socketpair()
    with closing(Line(one)) as line:
        other.sendall(peers._SIZES.pack(0, 1 << 60) + b"little")
        other.close()
        tracemalloc.start()
        with pytest.raises(EOFError):
            line.receive()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 * peers._STEP


def test_a_head_that_is_too_large_is_refused() -> None:
    one, other = socket.socketpair()
    with other, closing(Line(one)) as line:
        other.sendall(b"\xff" * 12)
        with pytest.raises(ConnectionError, match="head of 4294967295 bytes"):
            line.receive()


def test_messages_larger_than_what_is_allocated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_STEP", 1000)
    with ExitStack() as open_ones:
        listener = open_ones.enter_context(closing(listen(_give_back)))
        line = open_ones.enter_context(closing(connect(listener.address, PATIENCE)))
        for size in (0, 1, 999, 1000, 1001, 2000, 50_000, 300_001):
            data = os.urandom(size)
            line.send(b"head", data)
            head, body = line.receive()
            assert (bytes(head), bytes(body)) == (b"head", data)


def _give_back(line: Line) -> None:
    while True:
        message = line.receive()
        line.send(bytes(message.head), message.data)


def test_no_thread_and_no_socket_is_left_of_a_listener() -> None:
    before = set(threading.enumerate())
    listener = listen(_give_back)
    path = socket_path(listener.address.socket)
    assert path.is_socket()
    listener.close()
    assert not path.parent.exists()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


@as_root
def test_another_user_cannot_connect() -> None:
    with closing(listen(_give_back)) as listener:
        path = socket_path(listener.address.socket)
        path.chmod(0o777)
        assert is_closed_to_others(listener.address), "the directory is closed"


def test_a_stranger_stays_while_others_come_and_go(process: Process) -> None:
    """Its thread is not in the way of those that serve."""
    with ExitStack() as open_ones:
        for _ in range(peers._STRANGERS - 1):
            silent(open_ones.enter_context(knock(process.address)))
        for _ in range(20):
            assert_that_a_peer_gets_in(process.address)
