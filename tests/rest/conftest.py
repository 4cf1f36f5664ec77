"""Servers that end with their module, and a job that much has happened to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Client, LocalJob, checkpoints_in, counting, served

Serve = Callable[..., Client]


@pytest.fixture(scope="module")
def serve(runtime_directory: Path) -> Iterator[Serve]:
    """Makes servers, which end with the module."""
    with ExitStack() as servers:

        def make(*jobs: LocalJob, **options: Any) -> Client:
            return Client(servers.enter_context(served(*jobs, **options)))

        yield make


@pytest.fixture(scope="module")
def settings(directory: Path) -> dict[str, str]:
    return checkpoints_in(directory) | {
        "fs.s3a.secret.key": "hush",
        "pipeline.name": "<b>orders</b>",
    }


@pytest.fixture(scope="module")
def job(settings: dict[str, str]) -> Iterator[LocalJob]:
    """A job that has taken checkpoints and a savepoint, has failed, and goes on."""
    made = LocalJob(counting(settings, fails_at=55))
    with made.run:
        made.run.epoch()
        made.run.epoch(checkpoint=True)
        made.run.epoch()
        made.run.epoch(checkpoint=True)
        made.run.savepoint()
        made.fail()
        yield made


@pytest.fixture(scope="module")
def ask(serve: Serve, job: LocalJob) -> Client:
    return serve(job)
