"""An MCP server whose tools are defined in every way that is hard on a host: 200 and some odd ones."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from json_lines import LineServer

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

server = LineServer("odd", page_size=50)
for name in NAMES:
    server.add_tool(
        lambda name=name: repr(name),
        name=name,
        description="d" * 10_000 if name == "tool_007" else f"Called {name}.",
        inputSchema=SCHEMAS.get(name, {"type": "object", "properties": {}}),
    )
server.serve()
