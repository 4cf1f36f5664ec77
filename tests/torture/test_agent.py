"""An agent cuts a connection of its process, and no other socket."""

from __future__ import annotations

import subprocess
import sys

#: in a process of its own, because this one may have connections to others
PROGRAM = """
import asyncio, os, socket, time
from pathlib import Path
from holdfast.torture.agent import cut_connection, ensure_agent

run = Path({run!r})
(run / "agents").mkdir()
assert not cut_connection(0), "there is none"
pair = socket.socketpair()
listener = socket.create_server(("127.0.0.1", 0))
near = socket.create_connection(listener.getsockname())
far, _ = listener.accept()
ensure_agent(str(run))
order = run / "agents" / f"{{os.getpid()}}.cut"
deadline = time.monotonic() + 600
while not (run / "agents" / str(os.getpid())).exists():
    assert time.monotonic() < deadline
    time.sleep(0.005)
(run / "draft").write_text("3")
(run / "draft").rename(order)
near.settimeout(600)
assert near.recv(1) == b"", "the connection has ended"
while order.exists():
    assert time.monotonic() < deadline
    time.sleep(0.005)
pair[0].send(b"x")
assert pair[1].recv(1) == b"x", "a pair within the process has not"
other = socket.create_connection(listener.getsockname())
print("done")
"""


def test_a_connection_is_cut(tmp_path: object) -> None:
    program = PROGRAM.format(run=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=800
    )
    assert done.stdout == "done\n", done.stderr
