"""Half requests, unread answers and malformed HTTP cost a client its connection, nobody else's."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from typing import Any

import pytest

from holdfast.common import JobStatus
from holdfast.rest.access.accepting import Acceptor
from holdfast.rest.access.connections import Connections
from holdfast.rest.access.limits import Limits
from holdfast.rest.access.lobby import Caller
from holdfast.rest.access.notices import Notice
from tests.rest.conftest import Serve
from tests.serving import JOB_ID, Client, LocalJob, served

GET = b"GET /overview HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /jobs/" + JOB_ID.encode() + b"/savepoints HTTP/1.1\r\nHost: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def hasty(serve: Serve, job: LocalJob) -> Client:
    """A server that does not wait for long; a busy client may be too slow for a whole request."""
    return serve(job, limits=Limits(connections=64, seconds=0.2))


@contextmanager
def connected(ask: Client) -> Iterator[socket.socket]:
    host, port = ask.host.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        yield line


def read_to_the_end(line: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    data = b""
    try:
        while more := line.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


def statuses(told: bytes) -> list[int]:
    """The statuses of all answers in what a server has sent."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", told)]


# Deadlines


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"G",
        GET,
        POST + JSON + b"Content-Length: 100\r\n\r\n{",
        POST + JSON + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        POST + JSON + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        GET + b"\r\n" + GET,
        GET + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
    ids=["nothing", "a byte", "header", "body", "chunks", "expect", "second", "body of a GET"],
)
def test_half_a_request_is_not_waited_for(
    hasty: Client, part: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(hasty) as line:
        line.sendall(part)
        read_to_the_end(line)
    assert not caplog.records


@pytest.mark.parametrize("begin", [b"GET /", POST + JSON + b"Content-Length: 60000\r\n\r\n"])
def test_one_byte_at_a_time_is_no_request(hasty: Client, begin: bytes) -> None:
    with connected(hasty) as line:
        assert _sends_until_closed(line, begin, b"x"), "a byte prolongs the deadline"
        assert read_to_the_end(line) == b""


def test_an_answer_that_nobody_reads_is_given_up(serve: Serve, job: LocalJob) -> None:
    ask = serve(job, limits=Limits(seconds=0.2), rate=100_000)
    request = GET.replace(b"/overview", b"/openapi.json") + b"\r\n"
    with connected(ask) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert _sends_until_closed(line, request * 100, request)


def _sends_until_closed(line: socket.socket, first: bytes, again: bytes) -> bool:
    """Send something every ten milliseconds, read nothing; False if the server does not mind."""
    gone = select.poll()
    gone.register(line, 0)  # only errors and hang-ups
    try:
        line.sendall(first)
        line.setblocking(False)
        for _ in range(3000):
            if gone.poll(10):
                return True
            with suppress(BlockingIOError):
                line.send(again)
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def test_a_stream_that_is_read_has_no_deadline(serve: Serve, job: LocalJob) -> None:
    hasty = serve(job, limits=Limits(seconds=1.0))
    with closing(HTTPConnection(hasty.host, timeout=30)) as connection:
        connection.request("GET", f"/jobs/{JOB_ID}/live?events=2")
        with connection.getresponse() as stream:
            assert stream.readline() == b"event: job\n"
            with connected(hasty) as line:
                line.sendall(GET)
                read_to_the_end(line)  # so a deadline has passed
            job.recorder.status(JobStatus.RUNNING)
            assert stream.read().count(b"event: job\n") == 1


@pytest.mark.parametrize("request_", [GET + b"\r\n", GET.replace(b"\r", b"") + b"\n"])
def test_a_header_may_come_in_parts(request_: bytes) -> None:
    async def admitted(parts: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        ours, theirs = socket.socketpair()
        with ours, theirs:
            caller = Caller(ours, Connections(Limits()), lambda _, data: found.append(data))
            for part in parts:
                assert not found
                theirs.sendall(part)
                caller._read()
        return found

    for cut in range(1, len(request_)):
        assert asyncio.run(admitted([request_[:cut], request_[cut:]])) == [request_]


# The number of connections


@pytest.mark.parametrize(
    "half", [GET, POST + JSON + b"Content-Length: 100\r\n\r\n{"], ids=["header", "body"]
)
def test_strangers_cost_nobody_else_a_connection(serve: Serve, job: LocalJob, half: bytes) -> None:
    ask = serve(job, limits=Limits(connections=8), token="all")
    token = {"authorization": "Bearer all"}
    with closing(HTTPConnection(ask.host, timeout=30)) as known, ExitStack() as strangers:

        def status() -> int:
            known.request("GET", "/overview", headers=token)
            with known.getresponse() as answer:
                answer.read()
                return answer.status

        assert status() == 200
        own = known.sock
        lines = [strangers.enter_context(connected(ask)) for _ in range(50)]
        for line in lines:
            line.sendall(half)
        for line in lines[:40]:
            assert 200 not in statuses(read_to_the_end(line)), "the oldest make room"
        assert status() == 200
        assert known.sock is own, "the connection is the same one"
        assert ask("/overview", headers=token).status == 200


def test_the_log_tells_once_that_there_are_many(
    serve: Serve, job: LocalJob, caplog: pytest.LogCaptureFixture
) -> None:
    ask = serve(job, limits=Limits(connections=2))
    with ExitStack() as strangers:
        lines = [strangers.enter_context(connected(ask)) for _ in range(50)]
        for line in lines[:40]:
            read_to_the_end(line)
    assert [record.getMessage() for record in caplog.records] == [
        "the REST server has 2 connections, which is the limit; those that wait for their clients "
        "are closed to make room for new ones"
    ]


def test_streams_leave_room_for_requests(serve: Serve, job: LocalJob) -> None:
    ask = serve(job, limits=Limits(connections=4), rate=100_000)
    with ExitStack() as streams:

        def open_stream() -> tuple[HTTPConnection, int]:
            connection = streams.enter_context(closing(HTTPConnection(ask.host, timeout=30)))
            connection.request("GET", f"/jobs/{JOB_ID}/live")
            answer = streams.enter_context(connection.getresponse())
            return connection, answer.status

        first, status = open_stream()
        assert (status, open_stream()[1]) == (200, 200)
        reply = ask.job("/live")
        assert reply.status == 503
        assert "2 clients receive live updates" in reply.error
        assert ask("/overview").status == 200
        assert first.sock is not None
        first.sock.shutdown(socket.SHUT_RDWR)
        assert any(ask.job("/live?events=1").status == 200 for _ in range(1000))


def test_a_busy_server_lets_clients_wait(
    serve: Serve, job: LocalJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no connection that could make room, it pauses, and accepts the next one later."""
    paused, pause = threading.Event(), Acceptor._pause

    def pausing(acceptor: Acceptor, seconds: float) -> None:
        pause(acceptor, seconds)
        paused.set()

    monkeypatch.setattr(Acceptor, "_pause", pausing)
    ask = serve(job, limits=Limits(connections=1))
    with connected(ask) as stream:
        stream.sendall(GET.replace(b"/overview", f"/jobs/{JOB_ID}/live".encode()) + b"\r\n")
        assert statuses(stream.recv(65536)) == [200]
        with connected(ask) as line:
            line.sendall(GET + b"Connection: close\r\n\r\n")
            assert paused.wait(30)
            stream.close()
            assert statuses(read_to_the_end(line)) == [200]


# Malformed and unusual requests


def test_a_request_with_two_lengths_is_refused(ask: Client) -> None:
    """Request smuggling: a proxy and this server must see the same requests."""
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (
        len(smuggled) + 5
    )
    old = POST.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    several = b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n"
    for request in (POST + JSON + both, old, POST + JSON + several):
        with connected(ask) as line:
            line.sendall(request + smuggled)
            told = read_to_the_end(line)
        assert statuses(told) == [400], "nothing of it is a second request"


def test_pipelined_requests_are_answered_in_order(ask: Client) -> None:
    requests = [GET, GET.replace(b"/overview", b"/none"), GET + b"Connection: close\r\n"]
    with connected(ask) as line:
        line.sendall(b"".join(request + b"\r\n" for request in requests))
        assert statuses(read_to_the_end(line)) == [200, 404, 200]


def test_old_clients_are_answered(ask: Client) -> None:
    with connected(ask) as line:
        line.sendall(b"GET /overview HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert statuses(read_to_the_end(line)) == [200]
    with connected(ask) as line:
        line.sendall(b"GET /overview HTTP/1.0\r\n\r\n")
        assert read_to_the_end(line).startswith(b"HTTP/1.1 421"), (
            "no name by which it was addressed"
        )


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GET + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", 200),
        (GET + b"Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\n\r\n", 200),
        (b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost:22\r\n\r\n", 404),
        (b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 421),
        (GET + b"X: " + b"x" * 20_000, 400),
    ],
    ids=["websocket", "h2c", "connect", "trace", "options", "http2", "large header"],
)
def test_nothing_else_than_http_is_spoken(ask: Client, request_: bytes, status: int) -> None:
    with connected(ask) as line:
        line.sendall(request_)
        assert statuses(line.recv(65536))[:1] == [status]
    assert ask("/overview").status == 200


def test_garbage_after_an_answer_reaches_no_log(
    ask: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that has begun cannot be taken back."""
    chunk = b"11170\r\n" + b"x" * 70_000 + b"\r\n"
    with connected(ask) as line:
        line.sendall(POST + JSON + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
        assert statuses(line.recv(65536)) == [413]
        line.sendall(b"no chunk\r\n" * 10)
        assert statuses(read_to_the_end(line)) == []
    assert not caplog.records


# The log


def test_a_warning_is_logged_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    notice = Notice(logging.getLogger("test"), "it happened: %s", clock=lambda: now[0])
    for at in (0, 1, 599, 600, 601):
        now[0] = at
        notice(at)
    assert [record.getMessage() for record in caplog.records] == [
        "it happened: 0",
        "it happened: 600 (3 times since this was last logged)",
    ]


class Broken:
    """A site that fails, with a message that a client may have chosen."""

    acts = False

    def jobs(self) -> Any:
        raise RuntimeError("boom\nFORGED\x1b[31m")

    def job(self, job_id: str) -> Any:
        return None


def test_a_client_cannot_write_lines_of_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    ask = serve(site=Broken())
    for _ in range(20):
        assert ask("/jobs?a=%0aFORGED").status == 500
        assert ask("/%0aFORGED%1b%5b31m/jobs").status == 404
    (record,) = caplog.records
    assert record.getMessage() == (
        r"the REST request GET /jobs failed: RuntimeError: 'boom\nFORGED\x1b[31m'"
    )
    assert record.exc_text is not None
    assert all(line.startswith("  ") for line in record.exc_text.split("\n"))
    assert "\x1b" not in record.exc_text


# What is left behind


def test_a_server_leaves_no_descriptors(job: LocalJob) -> None:
    before = set(os.listdir("/dev/fd"))
    with served(job, limits=Limits(connections=8)) as server, ExitStack() as clients:
        ask = Client(server)
        assert ask("/overview").status == 200
        for part in (b"", GET, GET + b"\r\n"):
            clients.enter_context(connected(ask)).sendall(part)
        assert set(os.listdir("/dev/fd")) - before
    assert not set(os.listdir("/dev/fd")) - before
