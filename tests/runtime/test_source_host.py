"""The process of a source function, and who talks to it: real processes and sockets."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import InternalError
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.network.addresses import Address
from holdfast.runtime.network.desk import Desk, SourcePlace, ask
from holdfast.runtime.network.handshake import PeerError
from holdfast.runtime.network.peers import connect, listen
from holdfast.runtime.operators.sources.loop_process import HostedSources
from holdfast.runtime.operators.sources.source_instance import LiveSource, LoopStart, ReadRequest
from holdfast.runtime.worker.job_code import JobCode, make_job_code, new_key
from holdfast.testing import LocalExecutor
from tests.endless import Endless
from tests.spark.witness import until
from tests.strangers import STRANGERS, knock

# NB: the process is not the worker's to wait for: it goes on without it
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

PLACE = SourcePlace(0, 0, 0)


class Hosted:
    """The process of one source, and a way to read from it as a new worker would."""

    def __init__(self, directory: Path, one_host: bool) -> None:
        environment = StreamExecutionEnvironment.get_execution_environment()
        # NB: a uid with all that a path must not have
        environment.add_source(Endless()).uid("../../a source\n" + "x" * 300).print()
        with LocalExecutor(environment) as planned:
            plan = planned.plan
        key = new_key()
        self.desk = Desk(partial(listen, host="127.0.0.1", key=key.hex()), directory)
        self.desk.begin_attempt(0)
        self.job: JobCode = make_job_code(
            "job", plan, "", one_host=one_host, key=key, desk=self.desk.address
        )
        self.operator: PlannedOperator = self.job.plan.operators[0]
        self.epoch = 0

    def connect(self, attempt: int = 0) -> LiveSource:
        return HostedSources(attempt).connect(self.job, self.operator, 0, LoopStart())

    def read(self) -> list[Any]:
        """Ten more records, over a new connection."""
        self.epoch += 1
        with closing(self.connect()) as source:
            return [each for batch in source.read(ReadRequest(self.epoch, 10)) for each in batch]

    @property
    def address(self) -> Address:
        state = ask(self.desk.address, b"", "find", PLACE)
        assert state.address is not None
        return state.address


@pytest.fixture(params=[True, False], ids=["on one host", "on a cluster"])
def hosted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosted]:
    source = Hosted(tmp_path, request.param)
    yield source
    source.desk.close()  # without it the process ends


def test_no_stranger_ends_or_holds_up_the_process_of_a_source(hosted: Hosted) -> None:
    assert hosted.read() == list(range(10))
    with ExitStack() as open_ones:
        for number, behave in enumerate(STRANGERS * 2, 1):
            behave(open_ones.enter_context(knock(hosted.address)))
            behave(open_ones.enter_context(knock(hosted.desk.address)))
            assert hosted.read() == list(range(10 * number, 10 * number + 10))
    if hosted.job.one_host:
        assert hosted.address.socket
    else:
        assert hosted.address.host not in ("", "0.0.0.0", "::")
        assert hosted.address.port


def test_the_process_ends_with_its_attempt_and_is_not_started_again_in_it(hosted: Hosted) -> None:
    hosted.read()
    address = hosted.address.opened_by(hosted.job.key)
    hosted.desk.begin_attempt(1)
    until(lambda: not _answers(address))
    with pytest.raises(InternalError, match="cannot be reached: it has ended, or the attempt has"):
        hosted.connect(attempt=0)
    assert next(iter(hosted.connect(attempt=1).read(ReadRequest(1, 10))))[0] == 0


def _answers(address: Address) -> bool:
    try:
        connect(address, 0.5).close()
    except PeerError:
        return False
    return True


def test_a_process_that_has_died_is_told_at_once(hosted: Hosted) -> None:
    """The loop's position died with it: only the next attempt may start another one."""
    hosted.read()
    found = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "holdfast.runtime.operators.sources.loop_process"],
        capture_output=True,
        text=True,
        check=True,
    )
    for process in found.stdout.split():
        os.kill(int(process), signal.SIGKILL)
    until(lambda: ask(hosted.desk.address, b"", "find", PLACE).over)
    with pytest.raises(InternalError, match=r"Source', subtask 0, cannot be reached: it has ended"):
        hosted.connect()


def test_a_driver_that_is_gone_is_told(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path, one_host=True)
    hosted.desk.close()
    with pytest.raises(InternalError, match=r"subtask 0, cannot be reached: no process can be re"):
        hosted.connect()
