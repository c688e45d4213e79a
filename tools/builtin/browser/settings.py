"""The operator's settings for the browser."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """The table ``[browser]`` of config.toml."""

    searxng: str | None = None
    """The URL of a SearXNG; it must answer in JSON (``search.formats`` in its settings)."""
    search: str | None = None
    """A tool of a configured server that searches: ``server.tool``."""
    allow_private: tuple[str, ...] = ()
    """Networks that may be opened although they are not public: ``192.168.1.0/24``."""

    @classmethod
    def parse(cls, table: object, env: Mapping[str, str]) -> Self:
        """Read the table; AGENT_SEARXNG overrides ``searxng``. Raises ValueError with a sentence."""
        if not isinstance(table, dict):
            raise ValueError("browser must be a table of settings")
        rest: dict[str, Any] = dict(table)
        searxng = env.get("AGENT_SEARXNG") or rest.pop("searxng", None)
        search, networks = rest.pop("search", None), rest.pop("allow_private", [])
        rest.pop("searxng", None)
        if rest:
            raise ValueError(f"browser has no setting named {next(iter(rest))}")
        if searxng is not None and not str(searxng).startswith(("http://", "https://")):
            raise ValueError(f"browser.searxng must be an http address, not {searxng!r}")
        if search is not None and not (isinstance(search, str) and "." in search):
            raise ValueError(f"browser.search must be server.tool, not {search!r}")
        if not isinstance(networks, list):
            raise ValueError(
                'browser.allow_private must be a list of networks, as in ["10.0.0.0/8"]'
            )
        for network in networks:
            try:
                ipaddress.ip_network(network)
            except (ValueError, TypeError):
                raise ValueError(f"browser.allow_private: {network!r} is not a network") from None
        return cls(searxng, search, tuple(map(str, networks)))
