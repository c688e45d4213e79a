"""Fetches a page over HTTP, from public addresses only, with limits of size and time."""

import asyncio
import functools
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

import httpx2

from agent.errors import AgentError
from tools.builtin_server import ToolError
from tools.networks import Resolve, permits, resolve

MAX_PAGE_BYTES, FETCH_TIMEOUT_SECONDS, MAX_REDIRECTS = 10_000_000, 30.0, 5
TEXT_TYPES = ("text/", *(f"application/{kind}" for kind in ("xhtml", "xml", "json", "pdf")))
USER_AGENT = "Mozilla/5.0 (compatible; agent-local/0.1)"
ACCEPTED_TYPES = "text/html,application/pdf,text/*,*/*;q=0.1"
ALL_NETWORKS = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """The body of an HTTP response that can be read as text."""

    url: str
    """Its address after redirects."""
    kind: str
    """Its media type, without parameters."""
    charset: str | None
    data: bytes


class BlockedAddressError(AgentError):
    """The address may not be opened."""


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    """Return the context of all connections: reading the certificates takes some 20 ms."""
    return httpx2.create_ssl_context(trust_env=False)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects to permitted addresses only: it resolves a host itself, for every redirect, and connects
    to the very address that it has checked, whatever the name means later (DNS rebinding)."""

    def __init__(self, allowed: Sequence[str] = (), resolve: Resolve = resolve) -> None:
        """``allowed``: networks that may be opened although they are not public."""
        self._allowed = [ipaddress.ip_network(network) for network in allowed]
        self._resolve = resolve
        # Connections are not reused: another name may lead to the same address.
        limits = httpx2.Limits(max_keepalive_connections=0)
        self._inner = httpx2.AsyncHTTPTransport(_ssl_context(), trust_env=False, limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to a checked address; raises BlockedAddressError."""
        url = request.url
        if url.scheme not in ("http", "https") or not url.host:
            raise BlockedAddressError(f"not an http address: {url}")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await self._resolve(url.host, port)
        except (OSError, UnicodeError):
            raise BlockedAddressError(f"there is no host named {url.host}") from None
        address = next((text for text in addresses if permits(text, self._allowed)), None)
        if address is None:
            raise BlockedAddressError(f"{url.host} is not a public address")
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


async def fetch(
    url: str,
    transport: httpx2.AsyncBaseTransport,
    *,
    timeout: float = FETCH_TIMEOUT_SECONDS,
    stays: bool = False,
) -> FetchedPage:
    """Fetch a page within ``timeout`` seconds; raises ToolError. ``stays``: on the same host."""

    async def check(request: httpx2.Request) -> None:
        if stays and _site(request.url.host) != _site(httpx2.URL(url).host):
            raise BlockedAddressError(f"{url} leads to another host; open {request.url} yourself")

    try:
        async with (
            asyncio.timeout(timeout),
            httpx2.AsyncClient(
                transport=transport,
                trust_env=False,
                follow_redirects=True,
                event_hooks={"request": [check]},
                max_redirects=MAX_REDIRECTS,
                timeout=httpx2.Timeout(timeout, connect=10),
                headers={"User-Agent": USER_AGENT, "Accept": ACCEPTED_TYPES},
            ) as client,
            client.stream("GET", url) as response,
        ):
            return await _read(response)
    except BlockedAddressError as error:
        raise ToolError(str(error)) from None
    except TimeoutError:
        raise ToolError(f"{url} did not answer within {timeout:g} s") from None
    except httpx2.TooManyRedirects:
        raise ToolError(f"{url} redirects more than {MAX_REDIRECTS} times") from None
    except (httpx2.InvalidURL, UnicodeError):  # the latter: half of a pair of UTF-16
        raise ToolError(f"not an address: {url}") from None
    except httpx2.HTTPError as error:
        raise ToolError(f"cannot open {url}: {error or type(error).__name__}") from None


def _site(host: str) -> str:
    return host.lower().removeprefix("www.")


async def _read(response: httpx2.Response) -> FetchedPage:
    url = str(response.url)
    if response.status_code >= 400:
        raise ToolError(f"{url} answered {response.status_code} {response.reason_phrase}")
    kind = response.headers.get("content-type", "text/html").partition(";")[0].strip().lower()
    if not kind.startswith(TEXT_TYPES) and not kind.endswith(("+xml", "+json")):
        raise ToolError(f"{url} is {kind}, which cannot be read as text")
    data = bytearray()
    async for chunk in response.aiter_bytes(1 << 16):
        data += chunk
        if len(data) > MAX_PAGE_BYTES:
            raise ToolError(f"{url} is larger than {MAX_PAGE_BYTES // 1_000_000} MB")
    return FetchedPage(url, kind, response.charset_encoding, bytes(data))
