"""The ASGI application: the endpoints, the live stream, the metrics and the web UI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from holdfast.common.options.rest import RestOptions
from holdfast.errors import HoldfastError
from holdfast.printable import get_logger
from holdfast.rest.access.guard import Guard, Rights
from holdfast.rest.access.limits import Limits
from holdfast.rest.access.notices import Notice, described
from holdfast.rest.actions import Operations
from holdfast.rest.answers import Answers
from holdfast.rest.api import ENDPOINTS, Endpoint, EndpointCall, Parameter, matches
from holdfast.rest.errors import Refusal
from holdfast.rest.live import Live
from holdfast.rest.metrics import EXPOSITION, exposition
from holdfast.rest.openapi import description
from holdfast.rest.site import Site

_PAGE: Final = Path(__file__).with_name("page")
_JSON: Final = "application/json"
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_NO_TOKEN: Final = (
    "a token is required: send 'Authorization: Bearer TOKEN' with the token of 'rest.token' or "
    "'rest.read-token'; without tokens in its settings, a server answers only the user that runs it"
)
_logger = get_logger(__name__)


def make_app(
    site: Site, options: RestOptions, owner_token: str, limits: Limits | None = None
) -> Starlette:
    """Return the application of a server.

    ``owner_token`` authenticates the user that the jobs belong to.
    """
    server = _Server(site, options, limits or Limits())
    failed = Notice(_logger, "the REST request %s %s failed: %s")
    app = Starlette(
        routes=server.routes(),
        middleware=[Middleware(Guard, options=options, owner_token=owner_token)],
        exception_handlers={HTTPException: _on_http_error, Exception: partial(_on_error, failed)},
    )
    app.state.live, app.state.operations = server.live, server.operations
    return app


class _Server:
    def __init__(self, site: Site, options: RestOptions, limits: Limits) -> None:
        self._site = site
        self._options = options
        self.operations = Operations()
        self.live = Live(limits.streams)
        self._answers = Answers()

    def routes(self) -> list[BaseRoute]:
        by_path: dict[str, dict[str, Endpoint]] = {}
        for endpoint in ENDPOINTS:
            by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
        routes: list[BaseRoute] = [
            Route(path, partial(self._answer, methods), methods=list(methods))
            for path, methods in by_path.items()
        ]
        return [
            Route("/openapi.json", self._openapi, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            Route("/jobs/{job_id}/live", self._stream, methods=["GET"]),
            *routes,
            Mount("/", _Page(directory=_PAGE, html=True)),
        ]

    async def _answer(self, methods: dict[str, Endpoint], request: Request) -> Response:
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        return await _told(self._call(endpoint, request))

    async def _call(self, endpoint: Endpoint, request: Request) -> Response:
        rights = _rights(request, endpoint.acts)
        call = EndpointCall(
            self._site,
            self.operations,
            _path(request),
            _query(endpoint, request),
            None if endpoint.body is None else await self._body(endpoint.body, request),
            rights.owner,
        )
        return Response(await self._data(endpoint, call), endpoint.status, media_type=_JSON)

    async def _data(self, endpoint: Endpoint, call: EndpointCall) -> bytes:
        def made() -> bytes:
            return _encode(endpoint.handle(call))

        if endpoint.pure:
            asked = endpoint.path, *call.path.items(), *call.query.items()
            return self._answers.of(call.job.history, asked, made)
        return await run_in_threadpool(made) if endpoint.slow or endpoint.acts else made()

    async def _body(self, kind: Any, request: Request) -> Any:
        """Read the body, up to a limit; an empty body counts as an empty object."""
        data = bytearray()
        try:
            async for chunk in request.stream():
                data += chunk
                if len(data) > self._options.body:
                    raise Refusal(413, f"the request is larger than {self._options.body} bytes")
        except ClientDisconnect:
            raise Refusal(400, "the request is incomplete") from None
        if data and request.headers.get("content-type", "").partition(";")[0].strip() != _JSON:
            raise Refusal(415, f"the request must have the content type {_JSON}")
        try:
            return msgspec.json.decode(bytes(data or b"{}"), type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Refusal(400, f"the request cannot be read: {error}") from None

    async def _openapi(self, request: Request) -> Response:
        return Response(_encode(description()), media_type=_JSON)

    async def _metrics(self, request: Request) -> Response:
        return await _told(self._expose(request))

    async def _expose(self, request: Request) -> Response:
        _rights(request, acts=False)
        histories = [job.history for job in self._site.jobs()]
        return Response(exposition(histories), media_type=EXPOSITION)

    async def _stream(self, request: Request) -> Response:
        return await _told(self._open_stream(request))

    async def _open_stream(self, request: Request) -> Response:
        _rights(request, acts=False)
        job = EndpointCall(self._site, self.operations, _path(request), {}, None, False).job
        events = _converted(
            Parameter("events", {"type": "integer", "minimum": 1, "maximum": 1000}),
            request.query_params.get("events"),
        )
        return _EventStream(self.live, self.live.stream(job, events))


class _EventStream(StreamingResponse):
    """The events of a job, unless there are too many streams."""

    def __init__(self, live: Live, events: AsyncIterator[bytes]) -> None:
        headers = {"cache-control": "no-store"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._live.place():
                await super().__call__(scope, receive, send)
        except Refusal as refusal:
            await _errors(refusal.status, refusal.message)(scope, receive, send)


class _Page(StaticFiles):
    """The files of the web UI; browsers must revalidate their copies each time."""

    def file_response(self, *args: Any, **more: Any) -> Response:
        response = super().file_response(*args, **more)
        response.headers["cache-control"] = "no-cache"
        return response


async def _told(answer: Awaitable[Response]) -> Response:
    """Return the response; convert errors to responses as Flink does."""
    try:
        return await answer
    except Refusal as refusal:
        return _errors(refusal.status, refusal.message)
    except HoldfastError as error:
        return _errors(409, str(error))


def _errors(status: int, message: str) -> Response:
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return Response(_encode({"errors": [message]}), status, headers, _JSON)


def _rights(request: Request, acts: bool) -> Rights:
    """Return the rights of a client; raise a Refusal if they are not sufficient."""
    rights: Rights = request.state.rights
    if not rights.read:
        raise Refusal(401, _NO_TOKEN)
    if acts and not rights.act:
        raise Refusal(403, "this client may only read; send the token of 'rest.token'")
    return rights


def _path(request: Request) -> dict[str, str]:
    for name, text in request.path_params.items():
        if not matches(name, text):
            raise Refusal(404, f"{text[:100]!r} is not a {name.replace('_', ' ')}")
    return dict(request.path_params)


def _query(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for parameter in endpoint.query:
        text = request.query_params.get(parameter.name)
        if text is not None:
            found[parameter.name] = _converted(parameter, text)
        elif parameter.required:
            raise Refusal(400, f"the parameter {parameter.name!r} is missing")
    return found


def _converted(parameter: Parameter, text: str | None) -> Any:
    """Return a parameter converted by its schema: a number in a range, or a text."""
    schema = parameter.schema
    if text is None:
        return None
    if schema["type"] == "integer":
        least, most = schema["minimum"], schema["maximum"]
        digits = text.removeprefix("-")
        number = int(text) if digits.isascii() and digits.isdigit() and len(text) < 20 else None
        if number is None or not least <= number <= most:
            raise Refusal(
                400,
                f"{parameter.name!r} must be a number from {least} to {most}; got {text[:50]!r}",
            )
        return number
    if text not in schema.get("enum", [text]) or len(text) > schema.get("maxLength", 1000):
        allowed = schema.get("enum", f"at most {schema.get('maxLength', 1000)} characters")
        raise Refusal(400, f"{parameter.name!r} must be {allowed}; got {text[:50]!r}")
    return text


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _errors(error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def _on_error(failed: Notice, request: Request, error: Exception) -> Response:
    # NB: the path as it was sent, in which control characters are escaped
    path = request.scope["raw_path"].decode("latin-1")[:200]
    failed(request.method, path, described(error), error=error)
    return _errors(500, f"the server failed: {type(error).__name__}; the job's log has more")
