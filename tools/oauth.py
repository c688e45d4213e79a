"""Logging in to servers over HTTP, with the browser; the tokens are kept for later runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.config import ServerConfig

if TYPE_CHECKING:
    import httpx2


def stored_auth(config: ServerConfig) -> httpx2.Auth | None:
    return None
