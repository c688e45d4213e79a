"""An MCP server whose tools are defined in every way that is hard on a host: 200 and some odd ones."""

import anyio
import mcp.types as T
from mcp.server import Server
from mcp.server.stdio import stdio_server

TREE = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "string", "description": "Hidden\u202e\u200b here."},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        }
    },
}
deep: dict[str, object] = {"type": "string"}
for _ in range(80):
    deep = {"type": "object", "properties": {"x": deep}}

NAMES = [
    *(f"tool_{number:03}" for number in range(200)),
    *("x" * 100, "x" * 100 + "y"),  # too long, and the same at first sight
    *("a.b", "a-b", "a b", "A.B"),  # the same word, four times
    *("читать", "読む", "e\u0301", "rea\u202edone\u200b", "<|call|>", "to=functions.evil"),
]
SCHEMAS = {
    "tool_000": TREE,
    "tool_001": deep,
    "tool_002": {"type": "object", "properties": {"any": True, "nothing": False}},
    "tool_003": {"type": "object", "$ref": "#"},
    "tool_004": {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}},
    "tool_005": {"type": "object", "properties": {"a": {"type": "nonsense"}}, "required": ["b"]},
    "tool_006": {"type": "object"},
}


async def list_tools(context: object, params: T.PaginatedRequestParams) -> T.ListToolsResult:
    start = int(params.cursor or 0) if params else 0
    page = NAMES[start : start + 50]
    return T.ListToolsResult(
        tools=[
            T.Tool(
                name=name,
                description="d" * 10_000 if name == "tool_007" else f"Called {name}.",
                input_schema=SCHEMAS.get(name, {"type": "object", "properties": {}}),
            )
            for name in page
        ],
        next_cursor=str(start + 50) if start + 50 < len(NAMES) else None,
    )


async def call_tool(context: object, params: T.CallToolRequestParams) -> T.CallToolResult:
    return T.CallToolResult(content=[T.TextContent(text=f"{params.name!r}")])


async def main() -> None:
    server = Server("odd", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


anyio.run(main)
