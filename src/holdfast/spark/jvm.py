"""The JVM of the Spark driver: whether it is alive, and can call this process.

PySpark starts the JVM as a child process and communicates over sockets (Py4J). Spark calls this
process as well, once per epoch, over connections that a thread of Py4J accepts. Either can end
while a job runs: the JVM may be killed when memory is short, and the thread ends permanently if the
process has no file descriptor left.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark import SparkContext
from pyspark.errors import PySparkException

from holdfast.errors import HoldfastError, JobExecutionError, SparkLostError, UserFunctionError
from holdfast.printable import get_logger
from holdfast.spark.lacking import lacking
from holdfast.tracebacks import without_java_stack

#: how long a JVM whose sockets are closed may take to exit, in seconds
_LAST_BREATH: Final = 5.0
#: the interval of attempts to accept calls again, in seconds
_REVIVAL: Final = 1.0
#: how long to try, in seconds
_PATIENCE: Final = 10.0
#: the longest message of Spark, in characters
_LONGEST: Final = 2000

_logger = get_logger(__name__)


class DriverJvm:
    """Watches the JVM of a Spark driver."""

    def __init__(self, context: SparkContext) -> None:
        """Watch the JVM of a context."""
        self._context = context
        gateway = context._gateway
        # NB: use vars(), since the gateway looks up unknown attributes in the JVM
        self._gateway: dict[str, Any] = {} if gateway is None else vars(gateway)
        self._calls = _CallServer()

    def check(self) -> None:
        """Raise an error if no epoch can run any more; cheap enough for frequent calls.

        Raises:
            SparkLostError: if the JVM has died.
            JobExecutionError: if Spark cannot call this process.
        """
        process = self._process
        code = None if process is None else process.poll()
        if code is not None:
            raise _lost(_exit(code)) from None
        self._calls.check(self._gateway.get("_callback_server"))

    def lost(self) -> SparkLostError | None:
        """Return an error if the JVM has died; None if it is alive."""
        try:
            self._ask()
        except SparkLostError as lost:
            return lost
        except JobExecutionError:
            pass  # the JVM is alive
        return None

    def explain(
        self, error: BaseException, what: str = "Spark could not run an epoch"
    ) -> BaseException:
        """Return the error to report for an error that has ended an attempt.

        If the JVM has died, that is the cause of other errors, except in user functions. Errors of
        Holdfast are not changed, and Spark's are reported without their Java stack.
        """
        if isinstance(error, UserFunctionError | SparkLostError):
            return error
        lost = self.lost()
        if lost is not None:
            return lost
        if isinstance(error, HoldfastError):
            return error
        explained = JobExecutionError(f"{what}: {_text(error)}")
        explained.__cause__ = error
        return explained

    def _ask(self) -> None:
        """Call the JVM; raise a SparkLostError if it does not answer."""
        self.check()
        try:
            self._context._jsc.sc().isStopped()
        except Exception as error:
            how = self._death(error)
            if how is not None:
                raise _lost(how) from None

    @property
    def _process(self) -> subprocess.Popen[bytes] | None:
        """Return the JVM if this process has started it, which is not so with spark-submit."""
        return self._gateway.get("proc")

    def _death(self, error: Exception) -> str | None:
        """Return how the JVM died, if that is the cause of the error."""
        broken = isinstance(error, OSError) or is_of_bridge(error)
        if not broken or hasattr(error, "java_exception") or _is_out_of_descriptors(error):
            return None
        if self._process is None:
            return "its connections are closed"
        try:
            return _exit(self._process.wait(_LAST_BREATH))
        except subprocess.TimeoutExpired:
            return None


@contextmanager
def death_named() -> Iterator[None]:
    """Raise a SparkLostError in place of errors that are caused by the death of the JVM."""
    try:
        yield
    except Exception as error:
        context = SparkContext._active_spark_context
        lost = None if context is None else DriverJvm(context).lost()
        if lost is None or isinstance(error, SparkLostError):
            raise
        raise lost from None


class _CallServer:
    """Restarts the thread of Py4J that accepts Spark's calls.

    The thread ends when it cannot accept a connection. Spark then waits forever for an answer.
    """

    def __init__(self) -> None:
        self._ended: float | None = None
        self._revived = 0.0

    def check(self, server: Any) -> None:
        """Start the thread again if it has ended; raise an error if that does not help."""
        now = time.monotonic()
        thread = None if server is None else server.thread
        if thread is None or server.is_shutdown:
            return
        if thread.is_alive():
            if now - self._revived > _REVIVAL:
                self._ended = None
            return
        self._ended = self._ended or now
        if now - self._ended > _PATIENCE:
            raise JobExecutionError(
                "Spark cannot call this process: Py4J accepts no connections. A usual cause is "
                f"that a process has {_no_descriptors()}"
            )
        if now - self._revived > _REVIVAL:
            self._revived = now
            _revive(server)


def _text(error: BaseException) -> str:
    """Return the text of an error of another library, or its cause."""
    if _is_out_of_descriptors(error) or not _has_descriptors():
        return f"the process has {_no_descriptors()}"
    text = str(error) or type(error).__name__
    if isinstance(error, PySparkException) or is_of_bridge(error):
        missing = lacking(text)
        if missing is not None:
            return missing
        text = without_java_stack(text)
    return text[:_LONGEST]


def is_of_bridge(error: BaseException) -> bool:
    """Return whether an error is Py4J's; Holdfast depends on that package only through PySpark."""
    return type(error).__module__.startswith("py4j.")


def with_root(java: Any) -> str:
    """Return the text of a Java exception, with that of the exception that caused it in the end."""
    root = java
    while (cause := root.getCause()) is not None:
        root = cause
    told = [java.toString()] if root is java else [java.toString(), root.toString()]
    return ", caused by ".join(told)


def _revive(server: Any) -> None:
    _logger.warning("Py4J had stopped accepting Spark's calls; it is started again")
    server.thread = threading.Thread(target=server.run, name="py4j-callbacks", daemon=True)
    server.thread.start()


def _is_out_of_descriptors(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


def _has_descriptors() -> bool:
    """Return whether this process can open a file; PySpark does not always report failures."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True


def _no_descriptors() -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"no file descriptors left (too many open files; its limit is {limit}); raise the limit "
        "('ulimit -n'), or close files that the program does not need"
    )


def _exit(code: int) -> str:
    """Return a description of an exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _lost(how: str) -> SparkLostError:
    return SparkLostError(
        f"the JVM of the Spark driver has died ({how}); look for the reason in its output and in "
        "the system's log, such as a lack of memory. Start the program again: with a checkpoint "
        "directory the job continues from its last completed checkpoint"
    )
