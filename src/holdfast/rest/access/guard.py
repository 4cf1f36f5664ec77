"""Access control: the checks that a request must pass before it is handled.

It is an ASGI middleware around the whole application.

- **Host.** The host name of a request must be one of the server's own: an address, the name of the
  machine, or one of ``rest.allowed-hosts``. Requests of another site's page whose name was pointed
  here (DNS rebinding) contain that name.
- **Length.** A request has one length, so that a proxy in front of the server sees the same one.
- **Origin.** A request that changes something and comes from a page must come from this server's
  own page. Pages of other sites can send requests here from a user's browser.
- **Rate.** At most ``rest.requests-per-second``. Requests above the limit get status 429. Clients
  without rights have a limit of their own, so that they cannot use up that of the others.

The rights of the client are stored in the request, as ``scope["state"]["rights"]``; each endpoint
defines which it needs.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from holdfast.common.options.rest import RestOptions, SparkPage, is_loopback
from holdfast.rest.access.client_user import is_own_user

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HARMLESS: Final = ("GET", "HEAD", "OPTIONS")
#: sent with every response: no resources of other sites and no inline scripts are allowed
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
)


@dataclass(frozen=True)
class Rights:
    """The rights of a client; ``owner``: it is authenticated as the user who runs the jobs."""

    read: bool = False
    act: bool = False
    owner: bool = False


def rights_of(
    authorization: str | None,
    options: RestOptions,
    owner_token: str,
    is_owner: Callable[[], bool],
) -> Rights:
    """Return the rights of a client, by the token that it sends.

    Without tokens in the settings the server is on loopback, and the user that it belongs to needs
    none. ``is_owner`` returns whether the client belongs to that user. A client that is Spark's web
    UI does, and sends requests of anybody: it may read at most.
    """
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and token:
        if _same(token, owner_token):
            return Rights(True, True, True)
        if options.token and _same(token, options.token):
            return Rights(True, True)
        if options.read_token and _same(token, options.read_token):
            return Rights(True)
        return Rights()
    if options.behind_spark:
        return Rights(options.spark_ui is SparkPage.READ and is_owner())
    may = not (options.token or options.read_token) and is_owner()
    return Rights(may, may)


def _same(one: str, other: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())


class Guard:
    """The middleware that checks requests."""

    def __init__(self, app: ASGIApp, options: RestOptions, owner_token: str) -> None:
        """Wrap an application."""
        self._app = app
        self._options = options
        self._owner_token = owner_token
        self._hosts = _own_names(options)
        self._bucket, self._strangers = _Bucket(options.rate), _Bucket(options.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it to the application or reject it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        problem = self._problem(scope)
        if problem is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await _refuse(send_with_headers, *problem)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        if _is_ambiguous(scope, headers):
            return 400, "a request must have one length: Content-Length or Transfer-Encoding"
        rights = self._rights(scope, headers)
        scope.setdefault("state", {})["rights"] = rights
        if not (self._bucket if rights.read else self._strangers).take():
            return 429, "too many requests; try again in a second"
        host = headers.get("host", "")
        if not self._is_own(host):
            return 421, (
                f"this server is not {host[:200]!r}; add the name to 'rest.allowed-hosts' if it is"
            )
        if scope["method"] not in _HARMLESS and not _is_same_origin(headers, host):
            return 403, "a request that changes something must not come from another site's page"
        return None

    def _rights(self, scope: Scope, headers: dict[str, str]) -> Rights:
        is_owner = partial(is_own_user, scope.get("client"), scope.get("server"))
        return rights_of(headers.get("authorization"), self._options, self._owner_token, is_owner)

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if name is None or any(sign in host for sign in "/?#@\\ "):
            return False
        if name in self._hosts:
            return True
        # an address cannot be made to point here, unlike a name
        return _is_address(name) and (is_loopback(name) or not is_loopback(self._options.address))


def _own_names(options: RestOptions) -> frozenset[str]:
    names = {"localhost", options.address.lower().strip("[]"), *options.hosts}
    if not is_loopback(options.address):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_ambiguous(scope: Scope, headers: dict[str, str]) -> bool:
    """Return whether a proxy may see another end of the request (request smuggling)."""
    return "transfer-encoding" in headers and (
        "content-length" in headers or scope.get("http_version") == "1.0"
    )


def _is_same_origin(headers: dict[str, str], host: str) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


class _Bucket:
    """A token bucket: limits requests to ``rate`` per second, with bursts of twice that."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = self._most = 2.0 * rate
        self._filled = time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._filled) * self._rate)
        self._filled = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


async def _refuse(send: Send, status: int, message: str) -> None:
    body = msgspec.json.encode({"errors": [message]})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    if status == 400:  # the start of the next request is not known
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
