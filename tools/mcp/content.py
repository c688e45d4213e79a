"""The resources and prompts of MCP servers. The module ``listing`` imports the MCP SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tools.mcp.server import McpServer
from tools.results import ResultBuilder
from tools.types import Prompt, Resource

if TYPE_CHECKING:
    from mcp import Client

V = TypeVar("V")


class ServerContent:
    """Reads the resources and prompts of a host's servers."""

    def __init__(self, servers: Mapping[str, McpServer], results: ResultBuilder) -> None:
        self._servers, self._results = servers, results

    async def resources(self, server: str) -> list[Resource]:
        """Return a server's resources and templates; raises ValueError with a sentence."""
        from tools.mcp import listing

        return await self._fetch(server, listing.list_resources)

    async def prompts(self, server: str) -> list[Prompt]:
        """Return a server's prompts; raises ValueError with a sentence."""
        from tools.mcp import listing

        return await self._fetch(server, listing.list_prompts)

    async def get_prompt(
        self, server: str, name: str, arguments: dict[str, str]
    ) -> list[tuple[str, str]]:
        """Return a prompt's messages: role and text; raises ValueError with a sentence."""
        from tools.mcp import listing

        messages = await self._fetch(
            server, lambda client: listing.get_prompt(client, name, arguments)
        )
        return [(role, self._results.build([block]).text) for role, block in messages]

    async def _fetch(self, name: str, work: Callable[[Client], Awaitable[V]]) -> V:
        server = self._servers.get(name)
        connection = await server.live_connection() if server else None
        if server is None or connection is None:
            raise ValueError(f"the server {name} {server.problem() if server else 'is not known'}")
        return await connection.fetch(work)
