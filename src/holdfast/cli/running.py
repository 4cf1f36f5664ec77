"""Shared by the verbs for running jobs: how a job is named and found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.rest.client import JobHandle, find_job, jobs_of, servers

_Command = TypeVar("_Command", bound=Callable[..., Any])


def server_options(command: _Command) -> _Command:
    """Return the options for the server; by default, this user's jobs on this machine."""
    for option in (
        click.option(
            "--token", envvar="HOLDFAST_TOKEN", help="The token of that server; or HOLDFAST_TOKEN."
        ),
        click.option(
            "--url", metavar="URL", help="The address of another server, such as http://host:8081."
        ),
    ):
        command = option(command)
    return command


job_argument = click.argument("job", metavar="JOB")


def running_jobs(url: str | None, token: str | None) -> list[JobHandle]:
    """Return all jobs of the server."""
    return jobs_of(servers(url, token), named=url is not None)


def the_job(job: str, url: str | None, token: str | None) -> JobHandle:
    """Return a job by its id, its name, or a unique prefix of one."""
    return find_job(running_jobs(url, token), job)


def duration_of(milliseconds: float) -> str:
    """Format a duration."""
    seconds = int(milliseconds / 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")]
    shown = [f"{number}{unit}" for number, unit in parts if number]
    return " ".join(shown[:2]) or f"{milliseconds / 1000:.1f}s"
