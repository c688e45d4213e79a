"""A well-behaved MCP server with one tool of each kind that a host must handle."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp.types as T
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("plain")


@server.tool(annotations=T.ToolAnnotations(read_only_hint=True))
def echo(text: str) -> str:
    """Say it again.\u202e\u200b\x07"""
    return text


@server.tool()
def fail() -> str:
    raise ToolError("the moon is in the way")


@server.tool()
def big(size: int) -> str:
    return "a" + "x" * (size - 2) + "z"


@server.tool(structured_output=False)
def picture() -> list[T.ContentBlock]:
    return [
        T.TextContent(text="a dot"),
        T.ImageContent(data="A" * 16000, mime_type="image/png"),
        T.ResourceLink(name="more", uri="file:///more"),
    ]


@server.tool()
def table() -> dict[str, Any]:
    """Gives content and structured content."""
    return {"rows": [1, 2]}


@server.tool()
async def count(to: int, ctx: Context) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"step {number}")
    return "counted"


@server.tool()
async def wait(started: str, cancelled: str) -> str:
    """Say by files that it runs, and that it was cancelled."""
    Path(started).touch()
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        Path(cancelled).touch()
        raise
    return "waited"


@server.tool(name="a.b c-é")
def odd() -> str:
    return "odd"


if __name__ == "__main__":
    print("plain is up", file=sys.stderr)
    server.run("stdio")
