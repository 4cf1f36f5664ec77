"""Runs the tests of Google Cloud Storage and Azure on emulators of this machine.

    make test-stores                                the tests that need the emulators
    make test-stores ARGS="-k abfss -x"             ARGS go to pytest

fake-gcs-server is built with Go and Azurite is installed with npm, both in build/stores, the first
time. They listen on 127.0.0.1, keep everything in memory, and end with the tests.

Between the tests and Azurite is a proxy. Azure's client asks before it sends (``Expect:
100-continue``), and waits for seconds if an error arrives together with the answer to that:
https://github.com/Azure/azure-sdk-for-cpp/issues/550. The proxy gives the answer by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from services.process import LONGEST_START, free_port, listens  # noqa: E402

PLACE: Final = ROOT / "build" / "stores"
GCS: Final = "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURITE: Final = "azurite@3.37.0"
TESTS: Final = ("tests/filesystem/test_cloud_stores.py", "tests/spark/test_cloud_stores.py")


def gcs_server() -> Path:
    """Return the program, which is built if it is not there."""
    program = PLACE / GCS.replace("/", "-") / "fake-gcs-server"
    if not program.exists():
        install(["go", "install", GCS], program.parent, {"GOBIN": str(program.parent)})
    return program


def azurite() -> Path:
    """Return the program, which is installed if it is not there."""
    folder = PLACE / AZURITE
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        install(["npm", "install", "--prefix", ".", *quiet, AZURITE], folder, {})
    return program


def install(command: list[str], folder: Path, variables: dict[str, str]) -> None:
    """Run a package manager in a folder, or end with its message."""
    if shutil.which(command[0]) is None:
        sys.exit(f"there is no {command[0]} on the PATH; it is needed for {command[-1]}")
    print(f"installing {command[-1]} in {folder.relative_to(ROOT)}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(command, cwd=folder, env=os.environ | variables, check=False).returncode:
        sys.exit(f"{' '.join(command)} failed; its message is above")


@contextmanager
def running(command: list[str | Path], port: int) -> Iterator[str]:
    """Run a server until the end of the block; its address."""
    log = PLACE / f"{Path(command[0]).name}.log"
    with log.open("wb") as out, subprocess.Popen(command, cwd=PLACE, stdout=out, stderr=out) as run:
        try:
            deadline = time.monotonic() + LONGEST_START
            while not listens(port):
                if run.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{command[0]} did not start; see {log}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            run.terminate()


@contextmanager
def answering_early(port: int) -> Iterator[str]:
    """Run a proxy before a server until the end of the block; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, args=(listener, port), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def accept(listener: socket.socket, port: int) -> None:
    """Connect whoever comes, until the listener is closed."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection(("127.0.0.1", port))
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=send_requests, args=(client, server), daemon=True).start()
        threading.Thread(target=send_responses, args=(server, client), daemon=True).start()


def send_requests(client: socket.socket, server: socket.socket) -> None:
    """Pass on requests, without asking the server first."""
    try:
        with client.makefile("rb") as requests:
            while head := read_head(requests):
                found = re.search(rb"^content-length: *(\d+)", head, re.MULTILINE | re.IGNORECASE)
                length = int(found[1]) if found else 0
                head, asks = re.subn(rb"(?im)^expect: *100-continue\r\n", b"", head)
                if asks and length:
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                server.sendall(head + requests.read(length))
        server.shutdown(socket.SHUT_WR)
    except OSError:
        server.close()


def read_head(requests: BinaryIO) -> bytes:
    """Return a request up to its body; nothing if there is none."""
    head = b""
    while line := requests.readline():
        head += line
        if line == b"\r\n":
            return head
    return b""


def send_responses(server: socket.socket, client: socket.socket) -> None:
    """Pass on responses as they are."""
    try:
        while data := server.recv(1 << 16):
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)
    except OSError:
        client.close()


def main() -> int:
    """Start the emulators and run the tests."""
    gcs, azure = free_port(), free_port()
    here = f"http://127.0.0.1:{gcs}"
    in_memory = ["-backend", "memory", "-host", "127.0.0.1", "-scheme", "http"]
    urls = ["-port", str(gcs), "-external-url", here, "-public-host", here.partition("//")[2]]
    blobs = ["--inMemoryPersistence", "--silent"]
    # NB: without this, it sends to its makers how it is used
    blobs += ["--disableTelemetry", "--skipApiVersionCheck", "--blobPort", str(azure)]
    with (
        running([gcs_server(), *in_memory, *urls], gcs) as google_address,
        running([azurite(), *blobs], azure),
        answering_early(azure) as azure_address,
    ):
        found = {"HOLDFAST_TEST_GS": google_address, "HOLDFAST_TEST_AZURE": azure_address}
        tests = [sys.executable, "-m", "pytest", "-q", "-rs", *TESTS, *sys.argv[1:]]
        return subprocess.run(tests, cwd=ROOT, env=os.environ | found, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
