"""A lock on a file system that has none."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import Any

import msgspec
import pytest

from holdfast.filesystem import LockedError, file_system_of
from holdfast.filesystem.lease import Lease, LeaseTimes
from holdfast.testing import MemoryFileSystem

#: nobody renews by themselves, and looking takes no time
TIMES = LeaseTimes(renewal=3600, lease=10, look=1)
PATH = "/job/lock"


class Others:
    """What others do while somebody waits; counts how long that is."""

    def __init__(self, *deeds: Any) -> None:
        self.deeds = list(deeds)
        self.waited = 0.0

    def sleep(self, seconds: float) -> None:
        self.waited += seconds
        if self.deeds:
            self.deeds.pop(0)()


def take(files: MemoryFileSystem, name: bytes, others: Others | None = None) -> Lease:
    return Lease(files, PATH, name, TIMES, (others or Others()).sleep)


def holder(files: MemoryFileSystem) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.msgpack.decode(files.read(PATH))
    return found


def rewrite(files: MemoryFileSystem, **changes: Any) -> None:
    files.write(PATH, msgspec.msgpack.encode(holder(files) | changes))


def test_whoever_renews_has_it() -> None:
    files = MemoryFileSystem()
    first = take(files, b"first")
    others = Others(lambda: None, first.renew)
    with pytest.raises(LockedError, match="'/job/lock' is locked") as error:
        take(files, b"second", others)
    assert error.value.holder == b"first"
    assert others.waited == 2, "no longer than need be"
    assert first.is_held()


def test_nobody_waits_for_what_was_released() -> None:
    files, others = MemoryFileSystem(), Others()
    first = take(files, b"first")
    first.release()
    assert not first.is_held()
    assert take(files, b"second", others).is_held()
    assert others.waited == 0
    first.release()
    assert holder(files)["contents"] == b"second", "what is not its own it does not delete"


def test_it_may_be_released_while_somebody_looks() -> None:
    files = MemoryFileSystem()
    first = take(files, b"first")
    assert take(files, b"second", Others(first.release)).is_held()


def test_whoever_does_not_renew_for_the_time_of_a_lease_has_lost_it() -> None:
    files, others = MemoryFileSystem(), Others()
    first = take(files, b"first")
    second = take(files, b"second", others)
    assert others.waited == TIMES.lease
    assert second.is_held()
    assert not first.is_held()
    first.renew()
    assert second.is_held(), "who has lost it does not take it back"


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for() -> None:
    files, others = MemoryFileSystem(), Others()
    take(files, b"first")
    gone = os.fork()
    if not gone:
        os._exit(0)
    os.waitpid(gone, 0)
    rewrite(files, pid=gone)
    assert take(files, b"second", others).is_held()
    assert others.waited == 0


def test_a_process_of_another_machine_may_be_alive_whatever_its_number() -> None:
    files, others = MemoryFileSystem(), Others()
    take(files, b"first")
    rewrite(files, pid=2**22 + 1, host=f"not-{socket.gethostname()}")
    assert take(files, b"second", others).is_held()
    assert others.waited == TIMES.lease


def test_of_two_that_take_it_in_one_moment_one_is_told() -> None:
    files = MemoryFileSystem()
    first = take(files, b"first")
    files.delete(PATH)
    second = take(files, b"second")
    assert (first.is_held(), second.is_held()) == (False, True)


def test_what_somebody_has_half_written_is_theirs() -> None:
    files = MemoryFileSystem()
    first = take(files, b"first")
    whole = files.read(PATH)
    files.write(PATH, b"")
    with pytest.raises(LockedError):
        take(files, b"second", Others(lambda: files.write(PATH, whole)))
    assert first.is_held()
    files.write(PATH, b"\xc1")
    assert take(files, b"second").is_held(), "unless they never come to the end"


def test_a_file_system_that_does_not_answer_for_long_does_not_cost_the_lease(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFileSystem()
    lease = Lease(files, PATH, b"first", LeaseTimes(renewal=0.001, lease=0.01, look=0.1))
    with pytest.raises(LockedError):
        take(files, b"second", Others(*[lambda: wait_for_renewal(files)] * 10))

    def refuse(what: str, path: str) -> None:
        raise OSError(5, "no answer")

    files.watch = refuse
    while caplog.text.count("the lock '/job/lock' could not be renewed") < 2:
        time.sleep(0.001)
    files.watch = None
    wait_for_renewal(files)
    assert lease.is_held()


def test_whatever_ends_the_renewals_the_lease_is_known_to_be_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFileSystem()

    def break_down(what: str, path: str) -> None:
        raise SystemExit("ended")

    before = set(threading.enumerate())
    lease = Lease(files, PATH, b"first", LeaseTimes(renewal=0.001, lease=3600, look=0.1))
    (renewing,) = set(threading.enumerate()) - before
    assert not lease.is_lost
    files.watch = break_down
    renewing.join(60)
    assert lease.is_lost
    files.watch = None
    assert not lease.is_held()
    assert "the lock '/job/lock' is lost: cannot renew it: SystemExit('ended')" in caplog.text


def test_renewals_go_on_after_any_error() -> None:
    files = MemoryFileSystem()
    refused = threading.Event()

    def break_down(what: str, path: str) -> None:
        refused.set()
        raise RuntimeError("not what one expects of a file system")

    lease = Lease(files, PATH, b"first", LeaseTimes(renewal=0.001, lease=3600, look=0.1))
    files.watch = break_down
    assert refused.wait(60)
    files.watch = None
    wait_for_renewal(files)
    assert lease.is_held()
    lease.release()


def test_what_cannot_be_deleted_runs_out() -> None:
    files = MemoryFileSystem()
    lease = take(files, b"first")

    def refuse(what: str, path: str) -> None:
        raise OSError(5, "no answer")

    files.watch = refuse
    lease.release()
    files.watch = None
    assert not lease.is_held()
    others = Others()
    assert take(files, b"second", others).is_held()
    assert others.waited == TIMES.lease


def wait_for_renewal(files: MemoryFileSystem) -> None:
    before = holder(files)["renewals"]
    while holder(files)["renewals"] == before:
        pass


def test_on_an_object_store(s3: Any) -> None:
    files, path = file_system_of(f"{s3.uri}/job/lock", s3.options)
    lock = files.lock(path, b"first")
    second = Others(lock.renew)  # type: ignore[attr-defined]
    with pytest.raises(LockedError) as error:
        Lease(files, path, b"second", TIMES, second.sleep)
    assert error.value.holder == b"first"
    lock.release()
    assert not files.exists(path)
    files.lock(path, b"second").release()
