"""The client of REST servers, which the command line uses to control running jobs."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from holdfast.errors import HoldfastError
from holdfast.rest.registry import registered

_TIMEOUT: Final = 30.0
_POLL: Final = 0.2


class RestError(HoldfastError):
    """A server returned an error, or is not reachable."""


class Client:
    """A client of one server."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Set the address and the token."""
        self.url = url.rstrip("/")
        self._token = token

    def ask(self, path: str, method: str = "GET", body: Mapping[str, Any] | None = None) -> Any:
        """Send a request and return the response.

        Raises:
            RestError: with the server's message, or if it is not reachable.
        """
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                raise RestError(_said(error)) from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RestError(f"no server answers at {self.url}: {reason}") from error


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return "; ".join(json.loads(error.read())["errors"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code} {error.reason}"


class JobHandle:
    """A job of a server.

    Attributes:
        summary: its entry in ``/jobs/overview``.
    """

    def __init__(self, client: Client, summary: Mapping[str, Any]) -> None:
        """Use `jobs_of`."""
        self.client = client
        self.summary = summary
        self.id: str = summary["jid"]
        self.name: str = summary["name"]

    @property
    def page(self) -> str:
        """Return the address of its page in the web UI."""
        return f"{self.client.url}/#/jobs/{self.id}"

    def ask(
        self, path: str = "", method: str = "GET", body: Mapping[str, Any] | None = None
    ) -> Any:
        """Send a request about this job."""
        return self.client.ask(f"/jobs/{self.id}{path}", method, body)

    def do(
        self,
        path: str,
        status: str,
        body: Mapping[str, Any] | None = None,
        method: str = "POST",
    ) -> Mapping[str, Any]:
        """Start an asynchronous operation, wait for it, and return its result.

        Raises:
            RestError: if it failed.
        """
        trigger = self.ask(path, method, body)["request-id"]
        while True:
            answer = self.ask(f"{status}/{quote(trigger)}")
            if answer["status"]["id"] == "COMPLETED":
                return _result(answer["operation"])
            time.sleep(_POLL)


def _result(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    cause = operation.get("failure-cause") or operation.get("failureCause")
    if cause:
        raise RestError(cause["stack-trace"].partition(": ")[2] or cause["stack-trace"])
    return operation


def servers(url: str | None = None, token: str | None = None) -> list[Client]:
    """Return the servers of this user's jobs, or the one at ``url``."""
    if url is not None:
        return [Client(url, token)]
    return [Client(entry.url, entry.token) for entry in registered()]


def jobs_of(clients: list[Client], named: bool = False) -> list[JobHandle]:
    """Return the jobs of all servers; skip servers that have ended, unless ``named``."""
    found: list[JobHandle] = []
    for client in clients:
        try:
            answer = client.ask("/jobs/overview")
        except RestError:
            if named:
                raise
            continue
        found += [JobHandle(client, job) for job in answer["jobs"]]
    return found


def find_job(jobs: list[JobHandle], wanted: str) -> JobHandle:
    """Return the job with an id or a name, or with a unique prefix of one.

    Raises:
        RestError: if there is none, or there are several.
    """
    for fits in (
        lambda job: wanted in (job.id, job.name),
        lambda job: job.id.startswith(wanted) or job.name.startswith(wanted),
    ):
        found = [job for job in jobs if fits(job)]
        running = [job for job in found if job.summary["end-time"] == -1]
        chosen = running or found
        if len(chosen) == 1:
            return chosen[0]
        if chosen:
            listed = ", ".join(f"{job.id} ({job.name})" for job in chosen)
            message = f"'{wanted}' matches {len(chosen)} jobs: {listed}; use a longer part of an id"
            raise RestError(message)
    listed = ", ".join(f"{job.id} ({job.name})" for job in jobs)
    hint = f"there are {listed}" if jobs else "no job of this user runs on this machine"
    raise RestError(f"no job has an id or a name that starts with '{wanted}'; {hint}")
