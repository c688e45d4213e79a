"""A well-behaved MCP server with one tool of each kind that a host must handle."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import mcp.types as T
from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Sample
from pydantic import BaseModel

server = MCPServer("plain")


class Name(BaseModel):
    name: str


async def who() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


async def poem() -> Sample:
    message = T.SamplingMessage(role="user", content=T.TextContent(text="Write about frogs."))
    return Sample([message], max_tokens=20)


async def photo() -> Sample:
    image = T.ImageContent(data="aGk=", mime_type="image/png")
    return Sample([T.SamplingMessage(role="user", content=image)], max_tokens=20)


async def folders() -> ListRoots:
    return ListRoots()


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
    """Returns content and structured content."""
    return {"rows": [1, 2]}


@server.tool()
async def count(to: int, ctx: Context) -> str:
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"step {number}")
    return "counted"


@server.tool()
async def steps(seconds: float, ctx: Context) -> str:
    """Takes so long and reports progress all the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await ctx.report_progress(time.monotonic())
        await asyncio.sleep(0.1)
    return "arrived"


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


@server.tool()
async def ask(name: Annotated[ElicitationResult[Name], Resolve(who)]) -> str:
    """Asks the user for a name."""
    return f"{name.action} {name.data.name if name.action == 'accept' else '-'}"


@server.tool()
async def write(haiku: Annotated[T.CreateMessageResult, Resolve(poem)]) -> str:
    """Has the client's model write something."""
    return f"{haiku.model}: {haiku.content.text}"


@server.tool()
async def describe(caption: Annotated[T.CreateMessageResult, Resolve(photo)]) -> str:
    return f"{caption.model}: {caption.content.text}"


@server.tool()
async def where(roots: Annotated[T.ListRootsResult, Resolve(folders)]) -> str:
    return " ".join(str(root.uri) for root in roots.roots)


@server.tool()
async def whom(ctx: Context) -> str:
    """Who calls."""
    client = ctx.session.client_params
    return f"{client.client_info.name} {client.client_info.version}" if client else "nobody"


arrived: list[asyncio.Event] = []


@server.tool(annotations=T.ToolAnnotations(read_only_hint=True))
async def meet() -> str:
    """Returns when it runs twice at a time."""
    both = asyncio.Event()
    arrived.append(both)
    if len(arrived) == 2:
        for event in arrived:
            event.set()
    await both.wait()
    return f"met as number {arrived.index(both) + 1}"


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool."""
    server.add_tool(odd, name="grown")
    if (ctx.protocol_version or "") >= "2026":
        await ctx.notify_tools_changed()
    else:
        await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def teach(ctx: Context) -> str:
    """Adds a prompt."""
    server.add_prompt(Prompt.from_function(odd, name="taught"))
    if (ctx.protocol_version or "") >= "2026":
        await ctx.notify_prompts_changed()
    else:
        await ctx.session.send_prompt_list_changed()
    return "taught"


@server.resource("note://one")
def note() -> str:
    """The first note."""
    return "remember the milk"


@server.resource("note://{name}/picture", mime_type="image/png")
def picture_note(name: str) -> bytes:
    return name.encode()


@server.prompt()
def greet(name: str) -> str:
    return f"Say hello to {name}"


@server.tool(name="a.b c-é")
def odd() -> str:
    return "odd"


if __name__ == "__main__":
    print("plain is up", file=sys.stderr)
    match sys.argv[1:]:
        case ["http", port]:
            server.run("streamable-http", port=int(port))
        case ["sse", port]:
            server.run("sse", port=int(port))
        case _:
            server.run("stdio")
