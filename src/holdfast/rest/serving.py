"""A server in a thread of the driver.

The socket is bound immediately, so that a port in use is reported before the job runs, and so that
clients can connect. The server, with the framework it needs, is created when the first client
connects, so that a job without clients does not need it.

All jobs of a process with the same settings share a server, which ends with the last of them.

What Spark's web UI shows is a second server with the same jobs, on another port of loopback. Its
requests come from the driver's JVM, which is a process of the user that may do anything at the
first one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import select
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from holdfast.common.options.rest import RestOptions, SparkPage
from holdfast.errors import JobDefinitionError
from holdfast.printable import get_logger
from holdfast.rest.access.limits import Limits
from holdfast.rest.access.notices import Notice, described
from holdfast.rest.registry import Registration
from holdfast.rest.site import LiveJobs, ServedJob, Site

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

_BACKLOG: Final = 128
#: how long the end of a job waits for responses that are being sent, in seconds
_GRACE: Final = 2
#: how long it waits for clients to read the results of their requests, in seconds
_PATIENCE: Final = 2.0
#: pause after the server has failed, in seconds
_PAUSE: Final = 1.0

_logger = get_logger(__name__)

#: shows the server at an address in another web UI; returns what ends that, or None if it cannot
Mount: TypeAlias = Callable[[str], Callable[[], None] | None]


class RestServer:
    """A socket, and a thread that serves a site on it.

    Attributes:
        url: its address.
        token: authenticates a client as the user that this process belongs to.
    """

    def __init__(self, site: Site, options: RestOptions, limits: Limits | None = None) -> None:
        """Bind the socket; no request is answered before `start`.

        Raises:
            JobDefinitionError: when the port that the settings name is taken.
        """
        self._site = site
        self._options = options
        self._limits = limits or Limits()
        self.token = secrets.token_urlsafe(32)
        self._socket = _bind(options)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._wake, self._woken = os.pipe()
        self._failed = Notice(_logger, "the REST server at %s has failed; it is started again: %s")
        self._server: uvicorn.Server | None = None
        self._app: Starlette | None = None
        self._registration: Registration | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-rest", daemon=True)

    def start(self) -> None:
        """Wait for clients in a thread; register running jobs for the command line."""
        if self._site.acts and not self._options.behind_spark:
            try:
                self._registration = Registration(self.url, self.token)
            except OSError as error:
                _logger.warning("'holdfast list' will not find this job: %s", error)
        self._thread.start()

    def close(self, patience: float = 0.0) -> None:
        """Stop the server; clients have ``patience`` seconds to read results of their requests."""
        if self._registration is not None:
            self._registration.remove()
        os.write(self._woken, b"x")
        if self._app is not None:
            self._app.state.operations.wait_until_told(patience)
            self._app.state.live.close()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(_GRACE + 1)
        self._socket.close()
        if not self._thread.is_alive():
            os.close(self._wake)
            os.close(self._woken)

    def _run(self) -> None:
        while self._wait_for_client():
            try:
                self._serve()
            except Exception as error:  # there may be no descriptors left for an event loop
                self._failed(self.url, described(error), error=error)
                self._is_closing(_PAUSE)
            else:
                return

    def _wait_for_client(self) -> bool:
        """Wait until a client connects; return False if the server is closing."""
        # NB: no select(), which cannot wait for descriptors above 1023
        ready = select.poll()
        ready.register(self._socket.fileno(), select.POLLIN)
        ready.register(self._wake, select.POLLIN)
        ready.poll()
        return not self._is_closing(0)

    def _is_closing(self, seconds: float) -> bool:
        """Return whether the server is closing; wait up to ``seconds`` for it."""
        told = select.poll()
        told.register(self._wake, select.POLLIN)
        return bool(told.poll(seconds * 1000))

    def _serve(self) -> None:
        import uvicorn

        from holdfast.rest.access.accepting import Server
        from holdfast.rest.app import make_app

        self._app = make_app(self._site, self._options, self.token, self._limits)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=math.ceil(self._limits.seconds),
            timeout_graceful_shutdown=_GRACE,
        )
        self._server = Server(config, self._socket, self._limits)
        if not self._is_closing(0):
            self._server.run()


def _bind(options: RestOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    address = options.address.strip("[]")
    try:
        try:
            listener.bind((address, options.default_port))
        except OSError:
            if options.port is not None:
                raise
            listener.bind((address, 0))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        message = (
            f"cannot serve the REST API on {options.address}:{options.default_port}: "
            f"{error.strerror or error}; set 'rest.port' to a free port, to 0 for any, or "
            "'rest.enabled' to false"
        )
        raise JobDefinitionError(message) from error
    return listener


class _Shared:
    """A server, the jobs that it shows, and how many of them have not ended."""

    def __init__(self, options: RestOptions) -> None:
        self.jobs = LiveJobs()
        self.server = RestServer(self.jobs, options)
        self.users = 0
        self._options = options
        #: ends the second server, and removes it from Spark's web UI
        self._unmount = contextlib.ExitStack()
        self._mounted = options.spark_ui is SparkPage.OFF

    def mount(self, mount: Mount) -> None:
        """Show the jobs in another web UI as well, unless they are there or should not be."""
        if self._mounted:
            return
        server = RestServer(self.jobs, self._options.for_spark_ui())
        end = mount(server.url)
        if end is None:
            server.close()
            return
        # NB: the last one is called first: the way to the server stays until it has answered
        self._unmount.callback(end)
        self._unmount.callback(server.close, _PATIENCE)
        self._mounted = True
        server.start()

    def close(self) -> None:
        """Stop the servers."""
        with contextlib.suppress(OSError), self._unmount:
            self.server.close(_PATIENCE)


_lock = threading.Lock()
_shared: dict[RestOptions, _Shared] = {}


def serve(
    job: ServedJob,
    options: RestOptions,
    report: Callable[[str], object],
    mount: Mount | None = None,
) -> Callable[[], None]:
    """Show a job, and report the address of the server; return a function for the job's end.

    ``mount`` shows a server in Spark's web UI, if the settings want that.

    Raises:
        JobDefinitionError: when the port that the settings name is taken.
    """
    if not options.enabled:
        return lambda: None
    with _lock:
        shared = _shared.get(options)
        if shared is None:
            shared = _shared[options] = _Shared(options)
            shared.server.start()
        shared.jobs.add(job)
        shared.users += 1
        if mount is not None:
            shared.mount(mount)
    report(shared.server.url)
    return lambda: _leave(job, options, shared)


def _leave(job: ServedJob, options: RestOptions, shared: _Shared) -> None:
    with _lock:
        shared.jobs.end(job)
        shared.users -= 1
        if shared.users:
            return
        del _shared[options]
    shared.close()
