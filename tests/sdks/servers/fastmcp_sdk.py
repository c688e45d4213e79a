"""A server on FastMCP 2, 3 or 4, run by an environment of its own; see ``tests.sdks``."""

import sys
from dataclasses import dataclass

from fastmcp import Context, FastMCP

port, *kind = sys.argv[1:] or ["0"]
server = FastMCP("sdk")


@dataclass
class Name:
    name: str


@server.tool
async def ask(ctx: Context) -> str:
    """Ask while it runs."""
    answer = await ctx.elicit("Your name?", response_type=Name)
    return f"{answer.action} {answer.data.name}"


try:
    from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
except ImportError:
    pass
else:
    FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    @server.tool
    async def ask_newer(ctx: Context):
        """Ask by a result."""
        if responses := getattr(ctx, "input_responses", None):
            return f"{responses['name'].action} {responses['name'].content['name']}"
        params = ElicitRequestFormParams(message="Your name?", requested_schema=FORM)
        request = ElicitRequest(params=params)
        return InputRequiredResult(input_requests={"name": request}, request_state="asked")


if port == "0":
    server.run(show_banner=False)
else:
    server.run(
        transport="http",
        port=int(port),
        show_banner=False,
        **({"stateless_http": True} if "stateless" in kind else {}),
    )
