"""One test for each hole that systems of this kind have had."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.common import Configuration
from holdfast.common.options.rest import RestOptions, SparkPage, rest_options
from holdfast.errors import JobDefinitionError
from holdfast.history.journal import SUFFIX
from holdfast.rest.actions import confined
from holdfast.rest.app import make_app
from holdfast.rest.errors import Refusal
from holdfast.rest.site import Files
from tests.rest.conftest import Serve
from tests.serving import Client, LocalJob, counting

# Path traversal, in reads and in writes


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/..%2f..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/app.py",
        "/..%5c..%5capp.py",
        "//etc/passwd",
        "/%00",
        "/page/../../app.py",
        "/../app.py",
        "/jobs/..%2f..%2fapp.py",
    ],
)
def test_the_page_gives_no_other_files(ask: Client, path: str) -> None:
    reply = ask(path)
    assert reply.status == 404
    assert b"import" not in reply.body
    assert b"root:" not in reply.body


def test_links_lead_nowhere(serve: Serve, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"event":"job"}')
    link = tmp_path / "jobs" / f"{'a' * 32}{SUFFIX}"
    link.parent.mkdir()
    link.symlink_to(secret)
    assert serve(site=Files([link.parent]))("/jobs").json == {"jobs": []}


@pytest.mark.parametrize(
    "part",
    [
        "..",
        "%2e%2e",
        "..%2f..",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "1/../..",
        "-1",
        "1e3",
        "１",
        "%00",
    ],
)
def test_ids_in_paths_are_ids(ask: Client, part: str) -> None:
    assert ask.job(f"/checkpoints/details/{part}".replace("１", "%EF%BC%91")).status == 404
    assert ask(f"/jobs/{part}/plan".replace("１", "%EF%BC%91")).status == 404


@pytest.mark.parametrize(
    "wanted",
    [
        "/etc",
        "{base}/../elsewhere",
        "{base}/x/../../etc",
        "{base}-not",
        "..",
        "relative",
        "s3a://bucket/savepoints",
        "{link}",
        "{base}\0/x",
    ],
)
def test_savepoints_go_nowhere_else(
    ask: Client, job: LocalJob, wanted: str, tmp_path: Path
) -> None:
    base = Path(str(job.savepoint_directory))
    base.mkdir(exist_ok=True)
    link = base / "link"
    if not link.is_symlink():
        link.symlink_to(tmp_path)
    asked = wanted.format(base=base, link=link)
    reply = ask.job("/savepoints", "POST", {"target-directory": asked})
    assert reply.status == 403
    assert "may be written below" in reply.error
    assert ask.job("/stop", "POST", {"targetDirectory": asked}).status == 403


def test_savepoints_in_a_bucket_stay_in_their_folder(job: LocalJob) -> None:
    class InBucket:
        savepoint_directory = "s3a://bucket/savepoints"

    def may(directory: str) -> bool:
        try:
            return confined(directory, InBucket(), False) == directory  # type: ignore[arg-type]
        except Refusal:
            return False

    assert may("s3a://bucket/savepoints")
    assert may("s3a://bucket/savepoints/mine")
    assert not may("s3a://bucket/savepoints/../others")
    assert not may("s3a://bucket/savepoints/%2e%2e/others")
    assert not may("s3a://bucket/savepoints/%252e%252e/others")
    assert not may("s3a://bucket/savepoints-others")
    assert not may("s3a://other/savepoints/mine")
    assert not may("/etc")


def test_the_owner_may_name_any_directory(ask: Client, job: LocalJob, tmp_path: Path) -> None:
    owner = {"authorization": f"Bearer {ask.server.token}"}
    body = {"target-directory": str(tmp_path)}
    assert ask.job("/savepoints", "POST", body, headers=owner).status == 202


# Requests from other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize(
    ("path", "method"), [("/savepoints", "POST"), ("?mode=cancel", "PATCH"), ("/stop", "POST")]
)
def test_pages_of_other_sites_cannot_act(
    ask: Client, job: LocalJob, headers: dict[str, str], path: str, method: str
) -> None:
    reply = ask.job(path, method, headers=headers)
    assert reply.status == 403
    assert "another site's page" in reply.error
    assert not job.cancelled


def test_a_form_of_another_site_is_no_json(ask: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        reply = ask.job("/savepoints", "POST", b"{}", headers={"content-type": kind})
        assert reply.status == 415


def test_the_server_s_own_page_can_act(ask: Client) -> None:
    own = {"origin": f"http://{ask.host}", "sec-fetch-site": "same-origin"}
    assert ask.job("/checkpoints", "POST", headers=own).status == 202


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "x@127.0.0.1", ""]
)
def test_a_name_that_was_made_to_point_here_is_refused(ask: Client, host: str) -> None:
    """DNS rebinding."""
    assert ask("/jobs", headers={"host": host}).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost:8081", "127.0.0.1", "[::1]:8081"])
def test_own_names_are_taken(ask: Client, host: str) -> None:
    assert ask("/jobs", headers={"host": host}).status == 200


def test_further_names_can_be_allowed(serve: Serve, job: LocalJob) -> None:
    ask = serve(job, hosts=("jobs.example",))
    assert ask("/jobs", headers={"host": "jobs.example:8081"}).status == 200


def test_other_sites_are_told_nothing(ask: Client) -> None:
    reply = ask("/jobs", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in reply.headers
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"


# Rights


def test_a_server_that_others_reach_needs_a_token() -> None:
    for address in ("0.0.0.0", "::", "192.0.2.1", "myhost"):
        with pytest.raises(JobDefinitionError, match=r"rest\.token"):
            rest_options(Configuration({"rest.address": address}))
        rest_options(Configuration({"rest.address": address, "rest.token": "t"}))
    for address in ("127.0.0.1", "127.0.0.2", "localhost", "::1"):
        rest_options(Configuration({"rest.address": address}))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_looking_and_acting_are_separate_rights(serve: Serve, job: LocalJob) -> None:
    ask = serve(job, token="all", read_token="look")

    def statuses(headers: dict[str, str]) -> tuple[int, int, int]:
        return (
            ask.job(headers=headers).status,
            ask.job("/checkpoints", "POST", headers=headers).status,
            ask("/metrics", headers=headers).status,
        )

    assert statuses({}) == (401, 401, 401)
    assert statuses(bearer("wrong")) == (401, 401, 401)
    assert statuses({"authorization": "Basic all"}) == (401, 401, 401)
    assert statuses(bearer("look")) == (200, 403, 200)
    assert statuses(bearer("all")) == (200, 202, 200)
    assert statuses(bearer(ask.server.token)) == (200, 202, 200)
    assert ask.job("/live?events=1").status == 401
    assert ask("/").status == 200, "the page itself has no data"


def test_behind_the_web_ui_of_spark_nobody_is_the_user(serve: Serve, job: LocalJob) -> None:
    """The driver's JVM sends requests of anybody, and is a process of the user who may do all."""

    def statuses(ask: Client, *tokens: str) -> list[tuple[int, int]]:
        return [
            (
                ask.job(headers=headers).status,
                ask.job("/checkpoints", "POST", headers=headers).status,
            )
            for headers in ({}, *map(bearer, tokens))
        ]

    plain = serve(job, behind_spark=True)
    assert statuses(plain, "any") == [(401, 401), (401, 401)]
    read = serve(job, spark_ui=SparkPage.READ, behind_spark=True)
    assert statuses(read, "any") == [(200, 403), (401, 401)]
    tokens: dict[str, Any] = {"token": "all", "read_token": "look"}
    asked = serve(job, spark_ui=SparkPage.TOKEN, behind_spark=True, **tokens)
    assert statuses(asked, "look", "all") == [(401, 401), (200, 403), (200, 202)]
    both = serve(job, spark_ui=SparkPage.READ, behind_spark=True, **tokens)
    assert statuses(both, "look", "all") == [(200, 403), (200, 403), (200, 202)]
    assert serve(job, spark_ui=SparkPage.READ).job("/checkpoints", "POST").status == 202


def test_every_endpoint_that_acts_is_known_to(serve: Serve, job: LocalJob) -> None:
    from holdfast.rest.api import ENDPOINTS

    assert {endpoint.acts for endpoint in ENDPOINTS if endpoint.method != "GET"} == {True}
    assert {endpoint.acts for endpoint in ENDPOINTS if endpoint.method == "GET"} == {False}


def test_nothing_can_be_uploaded(ask: Client) -> None:
    for path in ("/jars/upload", "/jars", "/", "/index.html"):
        assert ask(path, "POST", b"x", headers={"content-type": "a/b"}).status in (404, 405)


# Secrets and scripts


def test_secrets_are_masked(ask: Client, job: LocalJob) -> None:
    reply = ask.job("/config")
    assert reply.json["configuration"]["fs.s3a.secret.key"] == "******"
    assert b"hush" not in reply.body
    assert all(b"hush" not in repr(event).encode() for event in job.history.remembered())


def test_a_name_with_a_script_is_only_data(ask: Client) -> None:
    """The page must show it as text; nobody may take an answer for a page."""
    for path in ("/jobs/overview", f"/jobs/{'0123456789abcdef' * 2}/exceptions"):
        reply = ask(path)
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-content-type-options"] == "nosniff"
    policy = ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


# State


@pytest.mark.parametrize(
    "key",
    [
        "not json",
        '{"a": 1}',
        "[" * 3000,
        '"' + "x" * 5000 + '"',
        "1e999999",
        "__import__('os')",
    ],
)
def test_a_hostile_key_is_refused(ask: Client, key: str) -> None:
    from urllib.parse import quote

    reply = ask.job(f"/state/value?operator=counts&state=count&key={quote(key)}")
    assert reply.status in (200, 400)
    assert reply.status == 400 or not reply.json["found"]


def test_a_hostile_operator_is_not_there(ask: Client) -> None:
    reply = ask.job("/state/value?operator=..%2F..%2Fetc&state=%00timers&key=1")
    assert reply.status == 404


class Bomb:
    """What runs code when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


@pytest.fixture
def pickling(tmp_path: Path) -> Iterator[LocalJob]:
    """A job whose state is pickled, and does something when it is unpickled."""
    from holdfast.datastream import KeyedProcessFunction, StreamExecutionEnvironment
    from holdfast.datastream.state import ValueStateDescriptor

    marker = tmp_path / "unpickled"

    class Keeps(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.bomb = runtime_context.get_state(ValueStateDescriptor("bomb"))

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.bomb.update(Bomb(marker))
            yield value

    env = StreamExecutionEnvironment(
        Configuration(
            {
                "execution.checkpointing.interval": "1h",
                "execution.checkpointing.dir": str(tmp_path / "chk"),
                "execution.checkpointing.num-retained": "2",
            }
        )
    )
    stream = env.set_parallelism(1).from_collection(list(range(10))).key_by(lambda n: n)
    made = LocalJob(stream.process(Keeps()).uid("keeps"), quota=2)
    with made.run:
        made.run.epoch(checkpoint=True)
        made.run.epoch(checkpoint=True)
        marker.unlink(missing_ok=True)
        yield made
        assert not marker.exists(), "code of a checkpoint was run"


def test_a_checkpoint_that_carries_code_is_looked_at_without_running_it(
    serve: Serve, pickling: LocalJob
) -> None:
    ask = serve(pickling)
    states = ask.job("/state").json["operators"]
    kept = next(operator for operator in states if operator["uid"] == "keeps")
    assert [state["pickled"] for state in kept["states"] if state["name"] == "bomb"] == [True]
    answer = ask.job("/checkpoints/compare/1/2")
    assert answer.status == 200, answer.body
    assert pickle.PROTO not in answer.body


# Limits


def test_a_large_request_is_refused(ask: Client) -> None:
    body = b'{"triggerId": "' + b"x" * 70_000 + b'"}'
    assert ask.job("/savepoints", "POST", body).status == 413


def test_many_requests_are_told_to_come_later(serve: Serve, job: LocalJob) -> None:
    ask = serve(job, rate=5)
    replies = [ask("/overview") for _ in range(30)]
    assert replies[0].status == 200
    late = [reply for reply in replies if reply.status == 429]
    assert late
    assert late[0].headers["retry-after"] == "1"


def test_requests_without_a_token_use_up_nobody_else_s_rate(serve: Serve, job: LocalJob) -> None:
    ask = serve(job, rate=5, token="all")
    refused = [ask("/overview").status for _ in range(30)]
    assert set(refused) == {401, 429}
    assert ask("/overview", headers=bearer("all")).status == 200


def test_garbage_is_no_error_of_the_server(ask: Client) -> None:
    host, port = ask.host.split(":")
    for data in (b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20000 + b"\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            raw.sendall(data + b"\r\n\r\n")
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(65536):
                pass
    assert ask("/overview").status == 200


def test_an_error_of_the_server_tells_no_details(job: LocalJob) -> None:
    """Its message could hold anything; the log has it."""

    class Broken:
        acts = False

        def jobs(self) -> Any:
            raise RuntimeError("secret")

        def job(self, job_id: str) -> Any:
            return None

    import asyncio

    app = make_app(Broken(), RestOptions(), "owner")
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/jobs",
        "raw_path": b"/jobs",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"authorization", b"Bearer owner")],
        "root_path": "",
    }
    with pytest.raises(RuntimeError):
        asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]


def test_masking_is_by_job(settings: dict[str, str], tmp_path: Path) -> None:
    own = {"execution.checkpointing.dir": str(tmp_path), "rest.token": "hush-hush"}
    made = LocalJob(counting(own))
    with made.run:
        assert made.history.began is not None
        assert made.history.began.configuration["rest.token"] == "******"
