"""A server with a search tool, which answers in the formats of such tools."""

import json

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

app = MCPServer("finder")


@app.tool()
def lookup(q: str, count: int = 5) -> str:
    """Find something."""
    if q.startswith("json"):
        results = [{"title": "One", "link": "https://one.example/", "snippet": "first"}]
        return json.dumps({"organic": results * count})
    if q == "fail":
        raise ToolError("out of quota")
    return f"see https://two.example/x for {q}, {count} of them"


app.run()
