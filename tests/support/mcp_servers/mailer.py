"""An MCP server that reads mail and sends it: its annotations say which tool reaches the open world."""

import mcp.types as T
from mcp.server import MCPServer

server = MCPServer("mailer")


@server.tool(annotations=T.ToolAnnotations(open_world_hint=True))
def send(text: str) -> str:
    """Send a mail."""
    return "sent"


@server.tool(annotations=T.ToolAnnotations(open_world_hint=False, read_only_hint=True))
def count() -> str:
    """Count the mails."""
    return "3"


server.run()
