"""A server whose tool searches, in the ways in which such tools answer."""

import json

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

app = MCPServer("finder")


@app.tool()
def lookup(q: str, count: int = 5) -> str:
    """Find something."""
    if q.startswith("json"):
        found = [{"title": "One", "link": "https://one.example/", "snippet": "first"}]
        return json.dumps({"organic": found * count})
    if q == "fail":
        raise ToolError("out of quota")
    return f"see https://two.example/x for {q}, {count} of them"


app.run()
