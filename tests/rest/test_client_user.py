"""Other users of the machine reach its loopback address, and get nothing there without a token."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast.rest.access import client_user
from holdfast.rest.access.client_user import is_own_user, user_of
from tests.rest.conftest import Serve
from tests.serving import JOB_ID, Client, LocalJob

NOBODY = 65534
knows_users = pytest.mark.skipif(
    not hasattr(socket, "AF_NETLINK"), reason="this system does not tell whose a socket is"
)
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

#: a client of another user: sends a request, and prints status and text of the answer
STRANGER = """
# NB: all imports while it is root: another user may not be able to read this Python
import encodings.idna, encodings.latin_1, http.client, json, os, sys
host, method, path, headers, user = json.loads(sys.argv[1])
os.setgid(user)
os.setuid(user)
connection = http.client.HTTPConnection(host, timeout=20)
connection.request(method, path, headers=headers)
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""
#: sends a request and is gone before it is answered
FLEETING = """
import encodings.idna, json, os, socket, sys
host, method, path, headers, user = json.loads(sys.argv[1])
os.setgid(user)
os.setuid(user)
name, port = host.split(":")
for _ in range(20):
    with socket.create_connection((name, int(port))) as line:
        line.sendall(f"{method} {path} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
"""


def as_nobody(program: str, ask: Client, method: str, path: str, **headers: str) -> str:
    order = json.dumps([ask.host, method, path, headers, NOBODY])
    command = [sys.executable, "-c", program, order]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@knows_users
@as_root
def test_another_user_of_the_machine_can_neither_look_nor_act(serve: Serve, job: LocalJob) -> None:
    ask = serve(job)
    requests = [("GET", "/jobs"), ("GET", "/metrics"), ("PATCH", f"/jobs/{JOB_ID}")]
    for method, path in [*requests, ("GET", f"/jobs/{JOB_ID}/live?events=1")]:
        told = as_nobody(STRANGER, ask, method, path)
        assert told.startswith("401"), path
        assert "answers only the user that runs it" in told
    assert not job.cancelled
    assert ask("/jobs").status == 200


@knows_users
@as_root
def test_who_hangs_up_at_once_is_nobody(serve: Serve, job: LocalJob) -> None:
    """A connection that its process has closed looks like one of root's."""
    ask = serve(job)
    as_nobody(FLEETING, ask, "PATCH", f"/jobs/{JOB_ID}")
    assert ask("/jobs").status == 200  # answered after all of them
    assert not job.cancelled


@knows_users
@as_root
def test_other_users_get_in_with_a_token(serve: Serve, job: LocalJob) -> None:
    ask = serve(job, read_token="read")
    told = as_nobody(STRANGER, ask, "GET", "/jobs", authorization="Bearer read")
    assert told.startswith("200")


@contextmanager
def connected(family: Any, host: str) -> Iterator[tuple[socket.socket, Any, Any]]:
    """A connection: the client's socket, and both addresses as the server sees them."""
    with socket.socket(family) as listener:
        try:
            listener.bind((host, 0))
        except OSError as error:
            pytest.skip(f"this machine has no {host}: {error}")
        listener.listen()
        address = listener.getsockname()[:2]
        with socket.create_connection(address) as client, listener.accept()[0] as accepted:
            yield client, accepted.getpeername()[:2], accepted.getsockname()[:2]


@knows_users
@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_the_user_of_a_connection_is_found(family: Any, host: str) -> None:
    with connected(family, host) as (_, client, server):
        assert user_of(client, server) == os.getuid()
        assert is_own_user(client, server)


@knows_users
def test_what_is_no_connection_is_nobody_s() -> None:
    with connected(socket.AF_INET, "127.0.0.1") as (end, client, server):
        assert user_of((client[0], client[1] ^ 1), server) is None
        # the server's port is found, but as one that listens
        assert user_of(server, (client[0], client[1] ^ 1)) is None
        end.close()
        assert user_of(client, server) is None
        assert not is_own_user(client, server)
        assert not is_own_user(None, server)


@knows_users
def test_without_descriptors_nobody_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    with connected(socket.AF_INET, "127.0.0.1") as (_, client, server):
        monkeypatch.setattr(client_user, "_ask", none_left)
        assert not is_own_user(client, server)


def test_where_the_system_does_not_tell_loopback_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_user, "_HAS_NETLINK", False)
    assert is_own_user(("127.0.0.1", 1), ("127.0.0.1", 2))
