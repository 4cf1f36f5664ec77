"""An S3 server that can go away and come back with its data: ``python -m tests.store HOST PORT``.

SIGUSR1: it refuses connections. SIGUSR2: it takes them again. What it is asked for is in its log.
"""

from __future__ import annotations

import logging
import signal
import sys

from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem

BUCKET = "kept"


def main(host: str, port: int) -> None:
    """Serve until the end of the process."""
    logging.getLogger("werkzeug").setLevel(logging.INFO)
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


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
