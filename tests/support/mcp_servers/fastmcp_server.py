"""A server on FastMCP, run by its own environment. Arguments: a port, or nothing for stdio; and
``login`` for one that wants a login, with FastMCP's own authorization server."""

import sys

from fastmcp import Context, FastMCP
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
auth = None
if "login" in sys.argv:
    from fastmcp.server.auth.auth import ClientRegistrationOptions
    from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

    auth = InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{sys.argv[1]}",
        client_registration_options=ClientRegistrationOptions(enabled=True),
    )
server = FastMCP("fast", auth=auth)


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", response_type=str)
    return f"{answer.action} {answer.data if answer.action == 'accept' else ''}"


@server.tool
async def ask_newer(ctx: Context):  # type: ignore[no-untyped-def]
    if responses := getattr(ctx, "input_responses", None):
        return f"{responses['name'].action} {responses['name'].content['name']}"
    request = ElicitRequest(
        params=ElicitRequestFormParams(message="Your name?", requested_schema=FORM)
    )
    return InputRequiredResult(input_requests={"name": request}, request_state="asked")


@server.tool
async def steps(ctx: Context) -> str:
    for step in range(3):
        await ctx.report_progress(step + 1, 3, f"step {step + 1}")
    return "x" * 300_000


if len(sys.argv) > 1:
    server.run(transport="http", port=int(sys.argv[1]), show_banner=False)
else:
    server.run(show_banner=False)
