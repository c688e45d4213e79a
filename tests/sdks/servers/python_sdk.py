"""A server on the Python SDK, 1 or 2, run by an environment of its own; see ``tests.sdks``."""

import sys

from pydantic import BaseModel

try:
    from mcp.server import MCPServer as Server
    from mcp.server.mcpserver import Context

    newer = True
except ImportError:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as Server

    newer = False

port, *kind = sys.argv[1:] or ["0"]
stateless = "stateless" in kind
settings = {} if newer else {"port": int(port), "stateless_http": stateless}
server = Server("sdk", **settings)


class Name(BaseModel):
    name: str


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask while it runs."""
    answer = await ctx.elicit("Your name?", Name)
    return f"{answer.action} {answer.data.name}"


if newer:
    from typing import Annotated

    from mcp.server.mcpserver.resolve import Elicit, Resolve

    async def name() -> Elicit[Name]:
        return Elicit("Your name?", Name)

    @server.tool()
    async def ask_newer(who: Annotated[Name, Resolve(name)]) -> str:
        """Ask by a result."""
        return f"accept {who.name}"


if port == "0":
    server.run("stdio")
elif newer:
    server.run("streamable-http", port=int(port), stateless_http=stateless)
else:
    server.run("streamable-http")
