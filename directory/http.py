"""The only way out: whatever URL came from outside is opened by this client, and by nothing else.

A name is resolved once, every address it has is judged (`directory.addresses`), and the connection goes
to exactly such an address; Host header and TLS still speak of the name. Redirects are not followed,
cookies not kept, proxies and .netrc of the environment not used, and answers have a size limit.
"""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Protocol, TypeVar

import certifi
import httpcore
import httpx
from django.conf import settings

from directory.addresses import NOTHING, Address, Allowlist, kind_of, literal, plain
from directory.exceptions import (
    AccessDenied,
    AddressRefused,
    ConnectionLost,
    InvalidAnswer,
    NotTrusted,
    RedirectRefused,
    RemoteError,
    ServerFailed,
    Throttled,
    TimedOut,
    Unreachable,
)

Client = httpx.AsyncClient
T = TypeVar("T")

CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
FETCH_SECONDS = 20.0
# Of an answer, and of each event of a stream; a stream may have that of some events altogether.
MAX_BODY_BYTES = 8 * 1024 * 1024
STREAM_EVENTS = 32
MAX_URL = 2000
USER_AGENT = "bureau"
DEFAULT_PORTS = {"http": 80, "https": 443}


# --- Policy --------------------------------------------------------------------------------------


def allowlist() -> Allowlist:
    """What BUREAU_OUTBOUND_ALLOW says."""
    return _parsed(tuple(settings.BUREAU_OUTBOUND_ALLOW))


@lru_cache(maxsize=8)
def _parsed(words: tuple[str, ...]) -> Allowlist:
    return Allowlist.parse(words)


def check_url(url: str, *, public_only: bool = False) -> str:
    """The URL in normal form, if it may be opened now: for the moment when it is saved.

    It is judged again whenever it is opened. With `public_only` the allowlist does not count. Resolves
    the name, so it may block for a moment. Raises AddressRefused, Unreachable.
    """
    parsed = _parse(url)
    try:
        addresses = _look_up(parsed.host, _port(parsed))
    except (OSError, UnicodeError):
        raise Unreachable(f"The name {parsed.host} cannot be resolved.") from None
    _judge(parsed.host, addresses, NOTHING if public_only else allowlist())
    return str(parsed)


def is_public(url: str) -> bool:
    """Whether every address of this URL is public, so that no allowlist is needed. Raises as `check_url`."""
    try:
        check_url(url, public_only=True)
    except AddressRefused:
        check_url(url)
        return False
    return True


async def aside(function: Callable[..., T], *args: object, **options: object) -> T:
    """Run what resolves names in a thread that nobody has to wait for, however slow the resolver is.

    (An event loop waits for its own threads before it closes.)
    """
    return await asyncio.get_running_loop().run_in_executor(_resolvers(), partial(function, *args, **options))


@lru_cache(maxsize=1)
def _resolvers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(32, "resolver")


def normal_form(url: str) -> str:
    """The URL as it would be opened, without its fragment; nothing is resolved. Raises AddressRefused."""
    return str(_parse(url.strip()))


def origin(url: str) -> str:
    """Scheme, host and port: "https://agent.example:443". Raises AddressRefused."""
    parsed = _parse(url)
    return f"{parsed.scheme}://{parsed.host}:{_port(parsed)}"


def _parse(url: str) -> httpx.URL:
    if len(url) > MAX_URL:
        raise AddressRefused(f"An address may have {MAX_URL} characters at most.")
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        raise AddressRefused("That is not an address (URL).") from None
    _check_form(parsed)
    return parsed.copy_with(fragment=None)


def _check_form(url: httpx.URL) -> None:
    if url.scheme not in DEFAULT_PORTS:
        raise AddressRefused("An address must start with http:// or https://.")
    if url.userinfo:
        raise AddressRefused("An address may not hold a user name or password.")
    if not url.host:
        raise AddressRefused("The address names no host.")
    if url.port is not None and not 0 < url.port < 65536:
        raise AddressRefused("The port of the address is not a number from 1 to 65535.")
    try:
        literal(url.host)
    except ValueError as error:
        raise AddressRefused(f"{error}.") from None


def _port(url: httpx.URL) -> int:
    return url.port or DEFAULT_PORTS[url.scheme]


def _look_up(host: str, port: int) -> list[Address]:
    """Every address of the host, in the resolver's order. Raises OSError, UnicodeError, ValueError."""
    itself = literal(host)
    if itself is not None:
        return [itself]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(plain(ip_address(sockaddr[0])) for *_, sockaddr in found))


def _judge(host: str, addresses: Sequence[Address], allowed: Allowlist) -> None:
    """Raises AddressRefused if one of them may not be contacted: a name with two faces is not to be trusted."""
    for address in addresses:
        kind = kind_of(address)
        if kind and not allowed.covers(host, address):
            # Which address it was is for the operator's resolver to know, not for whoever sent the URL.
            article = "an" if kind == "unspecified" else "a"
            raise AddressRefused(
                f"{host} is {article} {kind} address, which may not be contacted. "
                "An operator can allow it with BUREAU_OUTBOUND_ALLOW."
            )


# --- Connecting ----------------------------------------------------------------------------------


class _Backend(httpcore.AsyncNetworkBackend):
    """Opens TCP connections to judged addresses only."""

    def __init__(self, *, public_only: bool) -> None:
        self._tcp = httpcore.AnyIOBackend()
        self._public_only = public_only

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        # A stream's patience is for its events, not for the connection.
        until = time.monotonic() + min(timeout or CONNECT_SECONDS, CONNECT_SECONDS)
        addresses = await _resolve(host, port, until - time.monotonic())
        _judge(host, addresses, NOTHING if self._public_only else allowlist())
        failure: Exception = httpcore.ConnectError(f"{host} has no address.")
        for address in addresses:
            left = until - time.monotonic()
            if left <= 0:
                raise httpcore.ConnectTimeout
            try:
                return await self._tcp.connect_tcp(str(address), port, left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's interface
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        raise AddressRefused

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _resolve(host: str, port: int, seconds: float) -> list[Address]:
    """Every address of the host. Raises httpcore's connection errors."""
    try:
        async with asyncio.timeout(seconds):
            return await aside(_look_up, host, port)
    except TimeoutError:
        raise httpcore.ConnectTimeout from None
    except (OSError, UnicodeError):
        raise httpcore.ConnectError(f"The name {host} cannot be resolved.") from None


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """The authorities of this machine (SSL_CERT_FILE and SSL_CERT_DIR count), and Mozilla's."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class _Transport(httpx.AsyncHTTPTransport):
    def __init__(self, *, public_only: bool, max_bytes: int) -> None:
        super().__init__(verify=_tls(), trust_env=False)
        # httpx has no parameter for the backend; the version is pinned, and the tests would notice.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_tls(),
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=15.0,
            network_backend=_Backend(public_only=public_only),
        )
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _check_form(request.url)
        response = await super().handle_async_request(request)
        assert isinstance(response.stream, AsyncIterable)
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            # A kilobyte that unpacks to a gigabyte; we asked for none.
            await response.aclose()
            raise InvalidAnswer(f"The server compressed its answer ({encoding[:20]}) although it was asked not to.")
        limited = _Limited(response.stream, self._max_bytes, is_stream=is_event_stream(response.headers))
        return httpx.Response(
            response.status_code, headers=response.headers, stream=limited, extensions=response.extensions
        )

    async def aclose(self) -> None:
        # A stop in the middle would leave the connections that were not closed by then.
        await _to_its_end(self._pool.aclose())

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do this whole, although whoever asked for it may be cancelled meanwhile: then that comes after it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    finally:
        await asyncio.wait([task])


def is_event_stream(headers: Mapping[str, str]) -> bool:
    """Whether an answer with these headers is a stream of server-sent events."""
    return headers.get("content-type", "").partition(";")[0].strip().lower() == "text/event-stream"


class _Limited(httpx.AsyncByteStream):
    """A body of limited size; of an event stream, each event is limited instead."""

    def __init__(self, stream: AsyncIterable[bytes], limit: int, *, is_stream: bool) -> None:
        self._stream = stream
        self._limit = limit
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = count = 0
        tail = b""
        async for chunk in self._stream:
            total += len(chunk)
            count += len(chunk)
            if self._is_stream:
                # An empty line ends an event; it may lie across two chunks.
                seen = (tail + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
                end = seen.rfind(b"\n\n")
                count = count if end < 0 else len(seen) - end - 2
                tail = chunk[-3:]
            if count > self._limit or total > self._limit * STREAM_EVENTS:
                raise InvalidAnswer(f"The server's answer is larger than {self._limit // 1024} KiB.")
            yield chunk

    async def aclose(self) -> None:
        if hasattr(self._stream, "aclose"):
            await self._stream.aclose()


# --- The client ----------------------------------------------------------------------------------


class Authorizer(Protocol):
    """Gives the headers that let us in at one origin."""

    @property
    def origin(self) -> str:
        """As `origin()` writes it."""

    async def headers(self, *, renew: bool) -> dict[str, str] | None:
        """Header fields to send; with `renew` fresh ones after a refusal, or None if there are none."""


class _Auth(httpx.Auth):
    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def async_auth_flow(self, request: httpx.Request) -> Any:
        if origin(str(request.url)) != self._authorizer.origin:
            # A credential is for the place it was entered for, wherever a card or a redirect points.
            yield request
            return
        request.headers.update(await self._authorizer.headers(renew=False) or {})
        response = yield request
        if response.status_code == httpx.codes.UNAUTHORIZED:
            fresh = await self._authorizer.headers(renew=True)
            if fresh:
                request.headers.update(fresh)
                yield request


def open_client(
    *,
    authorizer: Authorizer | None = None,
    public_only: bool = False,
    read_seconds: float = READ_SECONDS,
    max_bytes: int = MAX_BODY_BYTES,
) -> Client:
    """A client to be used as an asynchronous context manager, in one event loop.

    With `public_only` the allowlist does not count: for addresses that a stranger's document names.
    """
    client = httpx.AsyncClient(
        transport=_Transport(public_only=public_only, max_bytes=max_bytes),
        auth=_Auth(authorizer) if authorizer else None,
        timeout=httpx.Timeout(read_seconds, connect=CONNECT_SECONDS),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        follow_redirects=False,
        trust_env=False,
    )
    return client


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer, and the address that gave it."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    def check(self) -> "Answer":
        """Itself, unless the status says that it failed. Raises RemoteError."""
        if self.status >= 300:
            raise status_error(self.status, self.headers)
        return self

    def json(self) -> Any:
        """Raises InvalidAnswer."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise InvalidAnswer("The server's answer is not JSON.") from None


async def fetch(
    client: Client,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    form: Mapping[str, str] | None = None,
    redirects: int = 0,
    seconds: float = FETCH_SECONDS,
) -> Answer:
    """One request and its whole answer, whatever the status.

    Up to `redirects` redirects are followed, within the host only: http may become https. Raises
    RemoteError: AddressRefused, RedirectRefused, NotTrusted, Unreachable, TimedOut, ConnectionLost,
    InvalidAnswer.
    """
    try:
        async with asyncio.timeout(seconds):
            while True:
                target = normal_form(url)
                response = await client.request(method, target, headers=headers, content=content, data=form)
                if not (redirects and response.has_redirect_location):
                    return Answer(target, response.status_code, response.headers, response.content)
                url = _redirected(response.url, response.headers["location"])
                redirects -= 1
    except TimeoutError:
        raise TimedOut from None
    except httpx.HTTPError as error:
        raise _explained(error) from error


def _redirected(source: httpx.URL, location: str) -> str:
    """Where a redirect leads. Raises RedirectRefused unless that is the same host, no less secure."""
    try:
        target = source.join(location)
    except (httpx.InvalidURL, UnicodeError):
        raise RedirectRefused("The server sent us to an address that is none.") from None
    steps = {source.scheme, target.scheme}
    same_port = _port(source) == _port(target) if len(steps) == 1 else target.port is None and source.port is None
    if target.host != source.host or not same_port or (source.scheme, target.scheme) == ("https", "http"):
        raise RedirectRefused(f"The server sent us to another place ({target.host[:100]}), which is not followed.")
    return str(target)


# --- Errors --------------------------------------------------------------------------------------


def status_error(status: int, headers: Mapping[str, str]) -> RemoteError:
    """The error that an HTTP status of 300 or more means."""
    match status:
        case 401 | 403:
            return AccessDenied(f"The server refused access (HTTP {status}).")
        case 429:
            return Throttled(retry_after=_retry_after(headers.get("retry-after", "")))
        case _ if status >= 500:
            return ServerFailed(f"The server failed to handle the request (HTTP {status}).")
        case _ if status < 400:
            return RedirectRefused(f"The server sent us to another place (HTTP {status}), which is not followed.")
        case _:
            return InvalidAnswer(f"The server answered with HTTP {status}.")


def _retry_after(text: str) -> float | None:
    """Seconds from now, of either form that the header has."""
    if text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def explain(error: BaseException) -> RemoteError | None:
    """The error of ours behind an exception that a library made of it, or None."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, RemoteError):
            return seen
        if isinstance(seen, httpx.HTTPStatusError):
            return status_error(seen.response.status_code, seen.response.headers)
        if isinstance(seen, httpx.HTTPError | httpx.InvalidURL):
            return _explained(seen)
        seen = seen.__cause__ or seen.__context__
    return None


def failed_answer(error: BaseException) -> Answer | None:
    """The answer with a failing HTTP status behind an exception, as far as it was read; None without one."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, httpx.HTTPStatusError):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    response = seen.response
    try:
        body = response.content
    except httpx.ResponseNotRead:
        body = b""
    return Answer(str(response.url), response.status_code, response.headers, body)


def _explained(error: httpx.HTTPError | httpx.InvalidURL) -> RemoteError:
    match error:
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return AddressRefused()
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            return Unreachable("The server did not take the connection in time.")
        case httpx.TimeoutException():
            return TimedOut()
        case httpx.ConnectError():
            reason = _tls_reason(error)
            return NotTrusted(f"The server's certificate is not valid: {reason}.") if reason else Unreachable()
        case httpx.TransportError():
            return ConnectionLost()
        case _:
            return InvalidAnswer()


def _tls_reason(error: BaseException) -> str:
    """What is wrong with the certificate, if that is what it was."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return seen.verify_message.rstrip(".")
        seen = seen.__cause__ or seen.__context__
    return ""
