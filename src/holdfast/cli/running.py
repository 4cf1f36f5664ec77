"""What the verbs for running jobs share: how a job is named, and where it is looked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.rest.client import JobHandle, find_job, jobs_of, servers

__all__ = ["duration_of", "job_argument", "running_jobs", "server_options", "the_job"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def server_options(command: _Command) -> _Command:
    """Where to look: at this user's jobs on this machine, or at a server that is named."""
    for option in (
        click.option(
            "--token", envvar="HOLDFAST_TOKEN", help="The token of that server; or HOLDFAST_TOKEN."
        ),
        click.option("--url", metavar="URL", help="A server elsewhere, as http://host:8081."),
    ):
        command = option(command)
    return command


job_argument = click.argument("job", metavar="JOB")


def running_jobs(url: str | None, token: str | None) -> list[JobHandle]:
    """All jobs there."""
    return jobs_of(servers(url, token), named=url is not None)


def the_job(job: str, url: str | None, token: str | None) -> JobHandle:
    """The job that a user means: by its id, its name, or the beginning of one."""
    return find_job(running_jobs(url, token), job)


def duration_of(milliseconds: float) -> str:
    """A time that has passed, for people."""
    seconds = int(milliseconds / 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    shown = [f"{number}{unit}" for number, unit in parts if number]
    return " ".join(shown[:2]) or f"{milliseconds / 1000:.1f}s"
