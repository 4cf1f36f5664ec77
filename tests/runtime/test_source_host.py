"""The process of a source function, and who talks to it: real processes and sockets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.datastream import StreamExecutionEnvironment
from holdfast.errors import InternalError
from holdfast.plan.model import PlannedOperator
from holdfast.runtime.addresses import Address, read_address
from holdfast.runtime.job import JobCode, make_job_code
from holdfast.runtime.source_host import HostedSources
from holdfast.runtime.sources import Beginning, LiveSource, ReadRequest
from holdfast.testing import LocalExecutor
from tests.endless import Endless
from tests.strangers import STRANGERS, knock

# NB: the process is not the worker's to wait for: it goes on without it
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Hosted:
    """The process of one source, and a way to read from it as a new worker would."""

    def __init__(self, directory: Path, one_host: bool) -> None:
        environment = StreamExecutionEnvironment.get_execution_environment()
        # NB: a uid with all that a path must not have
        environment.add_source(Endless()).uid("../../a source\n" + "x" * 300).print()
        with LocalExecutor(environment) as planned:
            plan = planned.plan
        self.job: JobCode = make_job_code("job", plan, str(directory), one_host=one_host)
        self.operator: PlannedOperator = self.job.plan.operators[0]
        self.directory = directory / "sources"
        self.epoch = 0

    def connect(self) -> LiveSource:
        return HostedSources(0).connect(self.job, self.operator, 0, Beginning())

    def read(self) -> list[Any]:
        """Ten more records, over a new connection."""
        self.epoch += 1
        with closing(self.connect()) as source:
            return [each for batch in source.read(ReadRequest(self.epoch, 10)) for each in batch]

    @property
    def registration(self) -> Path:
        (path,) = self.directory.iterdir()
        return path

    @property
    def address(self) -> Address:
        address = read_address(self.registration)
        assert address is not None
        return address


@pytest.fixture(params=[True, False], ids=["on one host", "on a cluster"])
def hosted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosted]:
    source = Hosted(tmp_path, request.param)
    yield source
    for path in source.directory.iterdir():
        path.unlink()  # without it the process ends


def test_no_stranger_ends_or_holds_up_the_process_of_a_source(hosted: Hosted) -> None:
    assert hosted.read() == list(range(10))
    with ExitStack() as open_ones:
        for number, behave in enumerate(STRANGERS * 2, 1):
            behave(open_ones.enter_context(knock(hosted.address)))
            assert hosted.read() == list(range(10 * number, 10 * number + 10))
    assert hosted.registration.stat().st_mode & 0o777 == 0o600
    assert hosted.registration.name == "0-0-0.json"
    if hosted.job.one_host:
        assert hosted.address.socket
    else:
        assert hosted.address.host not in ("", "0.0.0.0", "::")
        assert hosted.address.port


def test_a_registration_that_is_none_is_told(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path, one_host=True)
    hosted.directory.mkdir()
    os.mkfifo(hosted.directory / "0-0-0.json")
    with pytest.raises(InternalError, match=r"Source', subtask 0, cannot be reached: .* regular"):
        hosted.connect()


def test_a_process_that_is_gone_is_told(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path, one_host=True)
    hosted.directory.mkdir()
    text = '{"key":"' + "ab" * 32 + '","socket":"holdfast-socket-0123456789abcdef0123"}'
    (hosted.directory / "0-0-0.json").write_text(text)
    with pytest.raises(
        InternalError, match=r"reached at socket holdfast-socket-0123456789abcdef0123: No such"
    ):
        hosted.connect()
