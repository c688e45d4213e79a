"""One page over HTTP: only from public addresses, only so large, only so long."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx2

from tools.builtin.base import HandError

MAX_BYTES = 10_000_000
SECONDS = 30.0
REDIRECTS = 5
TYPES = ("text/", "application/xhtml", "application/xml", "application/json", "application/pdf")
AGENT = "Mozilla/5.0 (compatible; agent-local/0.1)"

ANYWHERE = ("0.0.0.0/0", "::/0")
"""All networks."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host."""


@dataclass(frozen=True, slots=True)
class Fetched:
    url: str
    """Where it was in the end."""
    kind: str
    """Its media type, without parameters."""
    charset: str | None
    data: bytes


class Refused(Exception):
    """The address may not be opened."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """What the system says."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


class Guard(httpx2.AsyncBaseTransport):
    """Resolves a host itself, and connects to the very address that it has checked: what the name
    means a moment later does not matter. Every redirect passes here again."""

    def __init__(self, allowed: Sequence[str] = (), resolve: Resolve = resolve) -> None:
        """``allowed``: networks that may be opened though they are not public."""
        self._allowed = [ipaddress.ip_network(one) for one in allowed]
        self._resolve = resolve
        # Connections are not kept: another name may lead to the same address.
        self._inner = httpx2.AsyncHTTPTransport(
            trust_env=False, limits=httpx2.Limits(max_keepalive_connections=0)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        if url.scheme not in ("http", "https") or not url.host:
            raise Refused(f"not an http address: {url}")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            found = await self._resolve(url.host, port)
        except (OSError, UnicodeError):
            raise Refused(f"there is no host named {url.host}") from None
        address = next((one for one in found if self.permits(one)), None)
        if address is None:
            raise Refused(f"{url.host} is not a public address")
        pinned = httpx2.Request(
            request.method,
            url.copy_with(host=address),
            headers=request.headers,  # Host among them
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": url.host},
        )
        return await self._inner.handle_async_request(pinned)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def permits(self, text: str) -> bool:
        try:
            address: Address = ipaddress.ip_address(text)
        except ValueError:  # with a scope: link-local
            return False
        if any(address in network for network in self._allowed):
            return True
        return all(one.is_global and not one.is_multicast for one in _meant(address))


def _meant(address: Address) -> list[Address]:
    """The address, and those that ways from one internet to the other hide in it."""
    found: list[Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        found += [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
        found += address.teredo or ()
        if address in ipaddress.ip_network("64:ff9b::/96"):
            found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address.ipv4_mapped is not None:
            found.remove(address)
    return found


async def fetch(url: str, guard: httpx2.AsyncBaseTransport) -> Fetched:
    """Raises HandError with a sentence for the model."""
    try:
        async with (
            asyncio.timeout(SECONDS),
            httpx2.AsyncClient(
                transport=guard,
                trust_env=False,
                follow_redirects=True,
                max_redirects=REDIRECTS,
                timeout=httpx2.Timeout(SECONDS, connect=10),
                headers={
                    "User-Agent": AGENT,
                    "Accept": "text/html,application/pdf,text/*,*/*;q=0.1",
                },
            ) as client,
            client.stream("GET", url) as response,
        ):
            return await _read(response)
    except Refused as error:
        raise HandError(f"Error: {error}") from None
    except TimeoutError:
        raise HandError(f"Error: {url} did not answer within {SECONDS:g} s") from None
    except httpx2.TooManyRedirects:
        raise HandError(f"Error: {url} redirects more than {REDIRECTS} times") from None
    except httpx2.InvalidURL:
        raise HandError(f"Error: not an address: {url}") from None
    except httpx2.HTTPError as error:
        raise HandError(f"Error: cannot open {url}: {error or type(error).__name__}") from None


async def _read(response: httpx2.Response) -> Fetched:
    url = str(response.url)
    if response.status_code >= 400:
        raise HandError(f"Error: {url} answered {response.status_code} {response.reason_phrase}")
    kind = response.headers.get("content-type", "text/html").partition(";")[0].strip().lower()
    if not kind.startswith(TYPES) and not kind.endswith(("+xml", "+json")):
        raise HandError(f"Error: {url} is {kind}, which cannot be read as text")
    data = bytearray()
    async for chunk in response.aiter_bytes(1 << 16):
        data += chunk
        if len(data) > MAX_BYTES:
            raise HandError(f"Error: {url} is larger than {MAX_BYTES // 1_000_000} MB")
    return Fetched(url, kind, response.charset_encoding, bytes(data))
