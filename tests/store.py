"""An S3 server that can go away and come back with its data: ``python -m tests.store HOST PORT``.

SIGUSR1: it refuses connections. SIGUSR2: it takes them again. What it is asked for is in its log.
"""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
from typing import Any

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

BUCKET = "kept"


def main(host: str, port: int) -> None:
    """Serve until the end of the process."""
    logging.getLogger("werkzeug").setLevel(logging.INFO)
    _put_one_at_a_time()
    own = {signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, own)
    server = ThreadedMotoServer(host, port, verbose=False)
    server.start()
    S3FileSystem(
        access_key="key",
        secret_key="secret",
        endpoint_override=f"http://{host}:{port}",
        region="us-east-1",
        allow_bucket_creation=True,
    ).create_dir(BUCKET)
    print("ready", flush=True)
    serves = True
    while True:
        asked = signal.sigwait(own)
        if serves and asked is signal.SIGUSR1:
            server.stop()
            assert server._server is not None
            server._server.server_close()
        elif not serves and asked is signal.SIGUSR2:
            server.start()
        serves = asked is signal.SIGUSR2


def _put_one_at_a_time() -> None:
    """Let nobody else write between the look at ``If-None-Match`` and the write, as in S3."""
    put, lock = S3Response.put_object, threading.Lock()

    @functools.wraps(put)
    def put_object(*args: Any) -> Any:
        with lock:
            return put(*args)

    S3Response.put_object = put_object  # type: ignore[method-assign]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
