"""An MCP server that asks with a form of every kind of field, and for a page to be visited."""

from typing import Annotated

import mcp.types as T
from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Resolve
from mcp.server.mcpserver.resolve import Elicit
from mcp.shared.exceptions import UrlElicitationRequiredError
from pydantic import BaseModel, Field

server = MCPServer("booking")
MEALS = [{"const": "m", "title": "Meat"}, {"const": "v", "title": "Vegetables"}]
EXTRAS = [{"const": "w", "title": "Wine"}, {"const": "b", "title": "Bread"}]


class Table(BaseModel):
    mail: Annotated[str | None, Field(None, title="E-mail", json_schema_extra={"format": "email"})]
    seats: Annotated[int, Field(title="Seats", description="at one table", ge=1, le=8)]
    meal: Annotated[str, Field("v", title="Meal", json_schema_extra={"oneOf": MEALS})]
    extras: Annotated[
        list[str], Field(["b"], title="Extras", json_schema_extra={"items": {"anyOf": EXTRAS}})
    ]
    window: Annotated[bool, Field(True, title="At a window")]


async def table() -> Elicit[Table]:
    return Elicit("Which table shall it be?", Table)


@server.tool()
async def book(wanted: Annotated[ElicitationResult[Table], Resolve(table)]) -> str:
    """Books a table."""
    return wanted.data.model_dump_json() if wanted.action == "accept" else wanted.action


class NoFields(BaseModel):
    pass


@server.tool()
async def clear(ctx: Context) -> str:
    """Asks for a yes or no."""
    answer = await ctx.elicit("Delete ALL your bookings?", NoFields)
    return f"it was {answer.action}"


class Guest(BaseModel):
    name: str


@server.tool()
async def invite(people: int, ctx: Context) -> str:
    """Asks for each name."""
    return " ".join([(await ctx.elicit("Who?", Guest)).action for _ in range(people)])


@server.tool()
def log_in(url: str = "https://example.org/login?next=tables") -> str:
    """Needs a page to be visited first."""
    page = T.ElicitRequestURLParams(message="Log in first.", url=url, elicitation_id="1")
    raise UrlElicitationRequiredError([page])


if __name__ == "__main__":
    server.run("stdio")
