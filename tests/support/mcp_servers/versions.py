"""A server on SDK 2, which speaks both eras of MCP. Arguments: a port, or nothing for stdio; and
``stateless`` for one that keeps no sessions over HTTP."""

import sys

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import INVALID_PARAMS, ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from pydantic import BaseModel


class Name(BaseModel):
    name: str


FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
server = MCPServer("versions")


@server.tool()
async def ask(ctx: Context) -> str:
    """Asks as servers did before 2026-07-28."""
    answer = await ctx.elicit("Your name?", Name)
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}"


@server.tool()
async def ask_newer(ctx: Context):  # type: ignore[no-untyped-def]
    """Asks as servers do since 2026-07-28; over older versions it fails as in FastMCP 4."""
    if (ctx.protocol_version or "") < "2026":
        raise MCPError(
            INVALID_PARAMS, "Tool 'ask_newer' returned an InputRequiredResult (SEP-2322)"
        )
    if responses := ctx.input_responses:
        return f"{responses['name'].action} {responses['name'].content['name']}"
    request = ElicitRequest(
        params=ElicitRequestFormParams(message="Your name?", requested_schema=FORM)
    )
    return InputRequiredResult(input_requests={"name": request})


@server.tool()
async def restless(ctx: Context) -> str:
    """Says again and again that its tools have changed."""
    for _ in range(500):
        await ctx.notify_tools_changed()
    return "still the same"


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]), stateless_http="stateless" in sys.argv)
else:
    server.run("stdio")
