"""Settings of the HTTP server, from its command line to its middleware. A leaf: imports nothing."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
MIB_BYTES = 1024 * 1024
MAX_BODY_MIB = 4
"""A resent history that fills a context of 131,072 tokens takes about one; images in it take more."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The operator's settings of a server; the defaults suit one on this machine, without a key."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    """0 takes a free one."""
    api_keys: Collection[str] = ()
    """Bearer tokens, of which every request needs one, except for ``/health``."""
    allow_origins: Collection[str] = ()
    """Web pages that may use the server, as origins: ``https://host``."""
    expose_tools: bool = False
    """Whether requests may name the operator's MCP servers and built-in tools."""
    store: bool = True
    """Whether responses are written to the store; otherwise they live in memory, with the process."""
    reasoning_events: Literal["openai", "open-responses"] = "openai"
    private_urls: bool = False
    """Whether the MCP servers that a request brings may have addresses that are not public."""
    client_servers: bool = False
    """Whether requests may bring MCP servers of their own; on loopback they always may."""
    aliases: tuple[str, ...] = ()
    lenient: bool = False
    """Whether what a request asks for and this server does not have is passed over, not refused."""
    page: bool = True
    """Whether browsers get a page at ``/``."""
    keepalive_seconds: float = 10.0
    """The longest silence of a stream (`agent.server.responses.sse`)."""
    max_body_bytes: int = MAX_BODY_MIB * MIB_BYTES
    """Longest body of a request, and longest message of a WebSocket."""
