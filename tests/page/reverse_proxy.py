"""A reverse proxy that shows a server below a path, as Spark's, YARN's and Jupyter's do."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: headers that are between two neighbours only
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")


@contextmanager
def below(prefix: str, url: str) -> Iterator[str]:
    """Yield the address below which a server is shown; the prefix ends with a slash."""
    host = urlsplit(url).netloc

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(prefix):
                self.send_error(404, "not below the prefix")
                return
            with closing(http.client.HTTPConnection(host, timeout=60)) as onward:
                size = int(self.headers.get("Content-Length", "0"))
                # NB: the Host that the browser has sent goes along
                body = self.rfile.read(size) if size else None
                path = "/" + self.path.removeprefix(prefix)
                onward.request(self.command, path, body, dict(self.headers.items()))
                self._pass_back(onward.getresponse())

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        def _pass_back(self, answer: http.client.HTTPResponse) -> None:
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            while data := answer.read1():
                self.wfile.write(data)
                self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Browsers leave whenever they like."""

    with Server(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{prefix}"
        finally:
            server.shutdown()
            thread.join()
