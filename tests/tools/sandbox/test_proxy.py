"""The proxy of a command: what it connects, what it refuses, and what hosts are sent."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tools.networks import AllowedHosts, HostError, HostRule
from tools.sandbox.proxy import MAX_CONNECTIONS, MAX_HEAD_BYTES, NetworkProxy

Talk = Callable[..., Any]


class Site:
    """A host that writes down what it is sent, and answers once."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.port = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await reader.read(1 << 16))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()


class Proxied:
    """A proxy with one site behind it."""

    def __init__(self, site: Site, names: dict[str, list[str]]) -> None:
        self.site, self.names = site, names
        self.resolved: list[str] = []
        self.contacts: list[dict[str, object]] = []
        self.port = 0

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.resolved.append(host)
        return self.names.get(host, [host])

    async def talk(self, *parts: bytes) -> bytes:
        """Send parts, each once something was answered to the one before; return all answers."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = b""
        for number, part in enumerate(parts):
            writer.write(part)
            if number < len(parts) - 1:
                answer += await reader.read(1 << 16)
        with contextlib.suppress(OSError):  # it has closed the connection
            writer.write_eof()
            answer += await reader.read()
        writer.close()
        return answer


@asynccontextmanager
async def proxied(hosts: Sequence[str], **names: list[str]) -> AsyncIterator[Proxied]:
    """``PORT`` in ``hosts`` is the site's; ``names``: the addresses of hosts, ``_`` for a dot."""
    site = Site()
    server = await asyncio.start_server(site.accept, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    allowed = [host.replace("PORT", str(site.port)) for host in hosts]
    result = Proxied(site, {name.replace("_", "."): value for name, value in names.items()})
    proxy = NetworkProxy(allowed, result.contacts.append, result.resolve)
    listener = socket.create_server(("127.0.0.1", 0))
    result.port = listener.getsockname()[1]
    serving = asyncio.create_task(proxy.serve(listener))
    async with server:
        yield result
    serving.cancel()


NAMED = ("site.example:PORT", "127.0.0.1:PORT")


async def test_proxy_tunnel_and_socks_pass_bytes_on() -> None:
    async with proxied(NAMED, site_example=["127.0.0.1"]) as it:
        port = it.site.port
        answer = await it.talk(
            b"CONNECT site.example:%d HTTP/1.1\r\nA: b\r\n\r\n" % port, b"\x16raw"
        )
        assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
        name = b"\5\1\0\3\x0cSite.Example" + port.to_bytes(2, "big")
        answer = await it.talk(b"\5\1\0", name, b"by name")
        assert answer.startswith(b"\5\0\5\0\0\1\0\0\0\0\0\0HTTP/1.1 200 OK")
        address = b"\5\1\0\1\x7f\0\0\1" + port.to_bytes(2, "big")
        await it.talk(b"\5\1\0", address, b"by address")
        assert it.site.received == [b"\x16raw", b"by name", b"by address"]
        assert it.contacts == [
            {"host": "site.example", "port": port},
            {"host": "127.0.0.1", "port": port},
        ]


async def test_proxy_plain_request_is_for_the_host_that_was_checked() -> None:
    async with proxied(NAMED, site_example=["127.0.0.1"]) as it:
        url = b"http://site.example:%d" % it.site.port
        await it.talk(
            b"GET " + url + b"?q=1 HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: x\r\n"
            b"Connection: keep-alive\r\nAccept: */*\r\n\r\n"
        )
        await it.talk(b"GET " + url + b"/ws HTTP/1.1\r\nUpgrade: websocket\r\n\r\n")
        authority = b"Host: site.example:%d\r\n" % it.site.port
        assert it.site.received == [
            b"GET /?q=1 HTTP/1.1\r\n" + authority + b"Connection: close\r\nAccept: */*\r\n\r\n",
            b"GET /ws HTTP/1.1\r\n"
            + authority
            + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        ]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"CONNECT other.example:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT site.example:22 HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT rebound.example:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT mapped.example:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT metadata.example:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT 127.0.0.2:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT 2130706433:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT [::ffff:127.0.0.1]:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT [::1%251]:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT site.example.evil.example:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT evilsite.example:PORT HTTP/1.1\r\n\r\n", 403),
        (b"CONNECT evil.example:PORT@site.example:PORT HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT site.example HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT site.example:99999 HTTP/1.1\r\n\r\n", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: site.example\r\n\r\n", 403),
        (b"GET http://site.example:PORT@evil.example/ HTTP/1.1\r\n\r\n", 400),
        (b"GET https://site.example:PORT/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: site.example:PORT\r\n\r\n", 400),
        (b"GET http://site.example:PORT/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400),
        (b"GET http://site.example:PORT/ HTTP/1.1\r\nA: b\nHost: evil\r\n\r\n", 400),
        (b"GET http://site.example:PORT/ x HTTP/1.1\r\n\r\n", 400),
        (b"\x04\x01" + bytes(8) + b"\r\n\r\n", 400),
    ],
)
async def test_proxy_everything_else_is_refused(head: bytes, status: int) -> None:
    async with proxied(
        (
            "site.example:PORT",
            "rebound.example:PORT",
            "mapped.example:PORT",
            "metadata.example:PORT",
        ),
        rebound_example=["127.0.0.1"],
        mapped_example=["::ffff:127.0.0.1"],
        metadata_example=["169.254.169.254"],
        site_example=["127.0.0.1"],
    ) as it:
        answer = await it.talk(head.replace(b"PORT", b"%d" % it.site.port))
        assert answer.startswith(b"HTTP/1.1 %d " % status) and it.site.received == []
        assert all("refused" in contact for contact in it.contacts)
        assert len(it.contacts) == (status == 403)


async def test_proxy_socks_refusals_have_its_codes() -> None:
    async with proxied(NAMED) as it:
        port = it.site.port.to_bytes(2, "big")
        odd = b"\5\1\0\3\x06evil\n\0"
        assert await it.talk(b"\5\1\0", odd + port) == b"\5\0\5\2\0\1" + bytes(6)
        assert [contact["host"] for contact in it.contacts] == ["evil??"]
        assert await it.talk(b"\5\1\0", b"\5\2\0\1\x7f\0\0\1" + port) == b"\5\0\5\7\0\1" + bytes(6)
        assert await it.talk(b"\5\1\2") == b"\5\xff"
        assert await it.talk(b"\5\1\0", b"\5\1\0\x09") == b"\5\0"
        assert it.site.received == []


async def test_proxy_connects_to_the_address_that_was_checked() -> None:
    """A name that means a private address the next time is asked for once (DNS rebinding)."""
    async with proxied(NAMED, site_example=["10.0.0.1", "127.0.0.1"]) as it:
        await it.talk(b"CONNECT site.example:%d HTTP/1.1\r\n\r\n" % it.site.port, b"x")
        assert it.site.received == [b"x"] and it.resolved == ["site.example"]


async def test_proxy_flood_is_bounded() -> None:
    async with proxied(NAMED) as it:
        streams = [
            await asyncio.open_connection("127.0.0.1", it.port) for _ in range(MAX_CONNECTIONS + 5)
        ]
        refused = [reader for reader, _ in streams[MAX_CONNECTIONS:]]
        assert [await reader.read() for reader in refused] == [b""] * 5
        for _, writer in streams:
            writer.close()
        head = b"GET http://127.0.0.1:%d/ HTTP/1.1\r\n" % it.site.port
        while not await it.talk(head + b"\r\n"):
            pass  # until the closed connections make room
        assert b"200" not in await it.talk(head + b"A: " + b"b" * MAX_HEAD_BYTES + b"\r\n\r\n")
        assert len(it.site.received) == 1 and len(it.contacts) == 1


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Wheel.example", "wheel.example"), ("github.com:22", "github.com:22"), ("*.a.org", "*.a.org"),
        ("10.0.0.0/8", "10.0.0.0/8"), ("[::1]:80", "[::1]:80"), ("::1", "::1"), ("a.b.", "a.b"),
        ("host_1:8080", "host_1:8080"),
    ],
)  # fmt: skip
def test_host_rule_is_written_as_it_was_read(text: str, plain: str) -> None:
    assert str(HostRule.parse(text)) == plain


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.com", "*.*.org", "a b", "http://a.b", "a.b/c", "a..b", ".a.b", "a.b:0", "a.b:70000",
     "a.*.b", "user@a.b", "1.2.3", "é.example", "a.b\n", "a" * 254, "-a.b", "a:b"],
)  # fmt: skip
def test_host_rule_odd_texts_are_refused(text: str) -> None:
    if text.endswith("\n"):
        assert str(HostRule.parse(text)) == text.strip()
    else:
        with pytest.raises(HostError):
            HostRule.parse(text)


def test_allowed_hosts_cover_what_they_allow_only() -> None:
    allowed = AllowedHosts(["*.example.org", "wheels.example", "github.com:22", "10.0.0.0/8"])
    for host, port in (("a.example.org", 443), ("A.B.example.org.", 80), ("10.1.2.3", 80)):
        assert allowed.allows(host, port), host
    for host, port in (
        ("example.org", 443),
        ("wheels.example", 22),
        ("github.com", 443),
        ("11.0.0.1", 80),
    ):
        assert not allowed.allows(host, port), host
    for text in (
        "a.example.org",
        "*.example.org",
        "wheels.example:443",
        "github.com:22",
        "10.2.3.4",
    ):
        assert allowed.covers(HostRule.parse(text)), text
    for text in ("*.a.example.org", "wheels.example:22", "github.com", "10.0.0.0/9", "8.8.8.8"):
        assert not allowed.covers(HostRule.parse(text)), text
