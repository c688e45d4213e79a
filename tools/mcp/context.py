"""Objects that all connections of one host share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tools.mcp.credentials import CredentialStore
from tools.results import ResultBuilder

if TYPE_CHECKING:
    from tools.mcp.sandboxed import ServerSandbox


@dataclass(frozen=True, slots=True)
class HostContext:
    """Collaborators that a host hands to each of its servers."""

    results: ResultBuilder
    roots: tuple[Path, ...]
    """Folders that servers may work in (MCP ``roots/list``)."""
    credentials: CredentialStore
    sandbox: ServerSandbox | None = None
    """Shared by servers in the sandbox; None: a sandbox for the working folder."""
    listeners: list[Callable[[str], None]] = field(default_factory=list)
    """Called with the name of a server that becomes ready or changes what it offers."""
    login_listeners: list[Callable[[str], None]] = field(default_factory=list)
    """Called with the name of a server that cannot be connected without a login."""
    client_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the server of an API client that sends a large message; all clients share it."""
