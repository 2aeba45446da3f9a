"""The guarded client against real servers: what it opens, what it refuses, and when."""

import asyncio
import datetime
import gzip
import socket
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from directory import http
from directory.exceptions import (
    AccessDenied,
    AddressRefused,
    ConnectionLost,
    InvalidAnswer,
    NotTrusted,
    RedirectRefused,
    ServerFailed,
    Throttled,
    TimedOut,
    Unreachable,
)
from tests.support.remote_agents import serve


class Counter:
    """How many requests came in, and the last one's headers."""

    def __init__(self):
        self.count = 0
        self.headers = {}


@pytest.fixture(scope="module")
def seen():
    return Counter()


@pytest.fixture(scope="module")
def server(seen):
    async def hello(request):
        seen.count += 1
        seen.headers = dict(request.headers)
        response = PlainTextResponse("hello")
        response.set_cookie("tracker", "1")
        return response

    async def redirect(request):
        return RedirectResponse(request.query_params["to"])

    async def big(request):
        return Response(b"x" * 100 * 1024)

    async def zipped(request):
        return Response(gzip.compress(b"0" * 1_000_000), headers={"Content-Encoding": "gzip"})

    async def events(request):
        size = int(request.query_params["size"])

        async def chunks():
            for _ in range(20):
                yield b"data: " + b"x" * size + b"\n"
                yield b"\n"

        return StreamingResponse(chunks(), media_type="text/event-stream")

    async def slow(request):
        await asyncio.sleep(60)

    async def status(request):
        return Response(status_code=int(request.path_params["code"]), headers={"Retry-After": "7"})

    async def dying(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise ConnectionError("dies in the middle, as it should")

    app = Starlette(
        routes=[
            Route("/", hello),
            Route("/redirect", redirect),
            Route("/big", big),
            Route("/zipped", zipped),
            Route("/events", events),
            Route("/slow", slow),
            Route("/status/{code}", status),
        ]
    )

    async def router(scope, receive, send):
        await (dying if scope.get("path") == "/dying" else app)(scope, receive, send)

    with serve(router) as url:
        yield url


async def get(url, **options):
    client_options = {name: options.pop(name) for name in ("public_only", "max_bytes", "authorizer") if name in options}
    async with http.open_client(**client_options) as client:
        return await http.fetch(client, "GET", url, **options)


def answers_of_dns(monkeypatch, *answers):
    """Let every name resolve to these addresses, one list for each time it is asked."""
    asked = list(answers)

    def getaddrinfo(host, port, *args, **kwargs):
        found = asked.pop(0) if len(asked) > 1 else asked[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


async def test_it_fetches(server, seen):
    answer = await get(server)
    assert (answer.status, answer.body) == (200, b"hello")
    assert seen.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "url",
    [
        "ftp://agent.example/",
        "file:///etc/passwd",
        "gopher://agent.example/",
        "//agent.example/",
        "agent.example",
        "http://",
        "http://user:secret@agent.example/",
        "http://agent.example@127.0.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://127.1/",
        "http://0177.0.0.1/",
        "http://[fe80::1%25eth0]/",
        "http://agent.example:99999/",
        "http://a\nb/",
        "http://agent.example/" + "x" * 3000,
    ],
)
async def test_it_refuses_what_is_no_plain_web_address(url):
    with pytest.raises(AddressRefused):
        http.check_url(url)
    with pytest.raises(AddressRefused):
        await get(url)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"],
)
async def test_it_refuses_addresses_inside(host, settings):
    settings.BUREAU_OUTBOUND_ALLOW = ()
    with pytest.raises(AddressRefused):
        http.check_url(f"http://{host}/")
    with pytest.raises(AddressRefused):
        await get(f"http://{host}/")


@pytest.mark.parametrize("host", ["localhost", "１２７.0.0.1", "127。0。0。1"])  # noqa: RUF001 - the point of it
async def test_it_refuses_names_that_lead_inside(host, settings):
    settings.BUREAU_OUTBOUND_ALLOW = ()
    with pytest.raises(AddressRefused):
        http.check_url(f"http://{host}/")
    with pytest.raises(AddressRefused):
        await get(f"http://{host}/")


async def test_it_refuses_a_name_with_one_address_inside(monkeypatch, settings):
    settings.BUREAU_OUTBOUND_ALLOW = ()
    answers_of_dns(monkeypatch, ["93.184.216.34", "10.0.0.1"])
    with pytest.raises(AddressRefused) as refusal:
        http.check_url("http://agent.example/")
    assert "10.0.0.1" not in str(refusal.value)


async def test_it_judges_again_when_connecting(monkeypatch, settings, server, seen):
    """DNS rebinding: public when it was saved, loopback when it is opened."""
    settings.BUREAU_OUTBOUND_ALLOW = ()
    before = seen.count
    port = server.rpartition(":")[2]
    answers_of_dns(monkeypatch, ["93.184.216.34"], ["127.0.0.1"])
    url = http.check_url(f"http://agent.example:{port}/")
    with pytest.raises(AddressRefused):
        await get(url)
    assert seen.count == before


async def test_it_resolves_once_and_keeps_the_name(monkeypatch, server, seen):
    port = server.rpartition(":")[2]
    answers_of_dns(monkeypatch, ["127.0.0.1"], ["10.255.255.1"])
    await get(f"http://agent.example:{port}/")
    assert seen.headers["host"] == f"agent.example:{port}"


async def test_public_only_leaves_the_allowlist_out(server, seen):
    before = seen.count
    with pytest.raises(AddressRefused):
        await get(server, public_only=True)
    assert seen.count == before
    assert not http.is_public(server)


async def test_it_ignores_proxies_and_netrc_of_the_environment(monkeypatch, tmp_path, server, seen):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert (await get(server)).body == b"hello"
    assert "authorization" not in seen.headers


async def test_it_keeps_no_cookies(server, seen):
    async with http.open_client() as client:
        for _ in range(2):
            await http.fetch(client, "GET", server)
    assert "cookie" not in seen.headers


async def test_it_follows_no_redirect_unless_asked(server):
    answer = await get(f"{server}/redirect?to=/")
    assert answer.status == 307
    with pytest.raises(RedirectRefused):
        answer.check()


async def test_it_follows_within_the_host(server):
    assert (await get(f"{server}/redirect?to=/", redirects=1)).body == b"hello"


@pytest.mark.parametrize(
    "to", ["http://localhost/", "http://169.254.169.254/", "https://127.0.0.1/", "//evil.example/"]
)
async def test_it_does_not_follow_elsewhere(server, to):
    with pytest.raises(RedirectRefused):
        await get(f"{server}/redirect?to={to}", redirects=3)


async def test_redirects_have_an_end(server):
    answer = await get(f"{server}/redirect?to=/redirect?to=/redirect", redirects=1)
    assert answer.status == 307


async def test_it_stops_reading_a_large_answer(server):
    with pytest.raises(InvalidAnswer, match="larger than 10 KiB"):
        await get(f"{server}/big", max_bytes=10 * 1024)


async def test_it_refuses_compressed_answers(server):
    with pytest.raises(InvalidAnswer, match="compressed"):
        await get(f"{server}/zipped")


async def test_it_limits_each_event_of_a_stream(server):
    assert len((await get(f"{server}/events?size=1000", max_bytes=2000)).body) > 2000
    with pytest.raises(InvalidAnswer, match="larger"):
        await get(f"{server}/events?size=3000", max_bytes=2000)


async def test_it_does_not_wait_for_ever(server):
    with pytest.raises(TimedOut) as caught:
        await get(f"{server}/slow", seconds=0.2)
    assert caught.value.can_retry
    assert caught.value.may_have_arrived


async def test_it_tells_a_broken_connection_from_none(server):
    with pytest.raises(ConnectionLost):
        await get(f"{server}/dying")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    with pytest.raises(Unreachable) as caught:
        await get(f"http://127.0.0.1:{closed}/")
    assert caught.value.can_retry
    assert not caught.value.may_have_arrived


async def test_an_unknown_name_is_unreachable():
    with pytest.raises(Unreachable):
        http.check_url("http://nobody.invalid/")
    with pytest.raises(Unreachable):
        await get("http://nobody.invalid/")


@pytest.mark.parametrize(
    ("code", "error"),
    [(401, AccessDenied), (403, AccessDenied), (404, InvalidAnswer), (429, Throttled), (500, ServerFailed)],
)
async def test_statuses_become_errors(server, code, error):
    answer = await get(f"{server}/status/{code}")
    with pytest.raises(error) as caught:
        answer.check()
    if error is Throttled:
        assert caught.value.retry_after == 7


# --- Credentials ---------------------------------------------------------------------------------


class Key:
    def __init__(self, origin):
        self.origin = origin

    async def headers(self, *, renew):
        return None if renew else {"X-Key": "secret"}


async def test_a_credential_goes_to_its_own_origin_only(server, seen):
    await get(server, authorizer=Key(http.origin(server)))
    assert seen.headers["x-key"] == "secret"
    await get(server.replace("127.0.0.1", "localhost"), authorizer=Key(http.origin(server)))
    assert "x-key" not in seen.headers


# --- TLS -----------------------------------------------------------------------------------------


def certificate(folder, name):
    """A self-signed certificate for one DNS name; returns (certificate file, key file)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


@pytest.fixture
def tls_port(tmp_path, monkeypatch):
    """The port of a server whose certificate is for agent.example, which this machine's authorities trust."""

    async def hello(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    cert, key = certificate(tmp_path, "agent.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    http._tls.cache_clear()
    with serve(hello, ssl_certfile=str(cert), ssl_keyfile=str(key)) as url:
        yield url.rpartition(":")[2]
    http._tls.cache_clear()


async def test_tls_is_verified_for_the_name_although_it_connects_to_an_address(tls_port, monkeypatch):
    answers_of_dns(monkeypatch, ["127.0.0.1"])
    assert (await get(f"https://agent.example:{tls_port}/")).body == b"hello"
    with pytest.raises(NotTrusted):
        await get(f"https://other.example:{tls_port}/")


async def test_an_unknown_authority_is_not_trusted(tls_port, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    http._tls.cache_clear()
    answers_of_dns(monkeypatch, ["127.0.0.1"])
    with pytest.raises(NotTrusted) as caught:
        await get(f"https://agent.example:{tls_port}/")
    assert not caught.value.can_retry


def test_addresses_of_dns_are_unmapped(monkeypatch, settings):
    settings.BUREAU_OUTBOUND_ALLOW = ("10.0.0.0/8",)
    answers_of_dns(monkeypatch, ["::ffff:10.0.0.1"])
    assert http.check_url("http://agent.example/") == "http://agent.example/"
    settings.BUREAU_OUTBOUND_ALLOW = ()
    with pytest.raises(AddressRefused, match="private"):
        http.check_url("http://agent.example/")


def test_a_slow_resolver_holds_nobody_up(monkeypatch):
    """An event loop waits for its own threads when it closes; this one is not one of them."""
    release = threading.Event()
    monkeypatch.setattr(http, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **options: release.wait(90) and [])
    started = time.monotonic()
    with pytest.raises(Unreachable):
        asyncio.run(get("http://agent.example/"))
    assert time.monotonic() - started < 60
    release.set()
