"""What the operator decides about browsing."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """The table ``[browser]`` of config.toml."""

    searxng: str | None = None
    """The address of a SearXNG; it must answer in JSON (``search.formats`` in its settings)."""
    search: str | None = None
    """A tool that searches, of a configured server: ``server.tool``."""
    allow_private: tuple[str, ...] = ()
    """Networks that are not public and may be opened all the same: ``192.168.1.0/24``."""

    @classmethod
    def of(cls, given: object, env: Mapping[str, str]) -> BrowserSettings:
        """From config.toml and, before it, the environment. Raises ValueError with a sentence."""
        if not isinstance(given, dict):
            raise ValueError("browser is a table of settings")
        table: dict[str, Any] = dict(given)
        searxng = env.get("AGENT_SEARXNG") or table.pop("searxng", None)
        search, networks = table.pop("search", None), table.pop("allow_private", [])
        table.pop("searxng", None)
        if table:
            raise ValueError(f"browser has no setting named {next(iter(table))}")
        if searxng is not None and not str(searxng).startswith(("http://", "https://")):
            raise ValueError(f"browser.searxng is an http address, not {searxng!r}")
        if search is not None and not (isinstance(search, str) and "." in search):
            raise ValueError(f"browser.search is server.tool, not {search!r}")
        if not isinstance(networks, list):
            raise ValueError("browser.allow_private is a list of networks")
        for one in networks:
            try:
                ipaddress.ip_network(one)
            except (ValueError, TypeError):
                raise ValueError(f"browser.allow_private: {one!r} is no network") from None
        return cls(searxng, search, tuple(map(str, networks)))
