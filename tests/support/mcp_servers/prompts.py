"""An MCP server of an older version that has prompts only, one more once they were listed."""

import json
import sys
from typing import Any

names = ["first"]


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


for line in sys.stdin:
    match json.loads(line):
        case {"id": id, "method": "initialize"}:
            about = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"prompts": {"listChanged": True}},
                "serverInfo": {"name": "prompts", "version": "1"},
            }
            send({"id": id, "result": about})
        case {"id": id, "method": "prompts/list"}:
            send({"id": id, "result": {"prompts": [{"name": name} for name in names]}})
            if "second" not in names:
                names.append("second")
                send({"method": "notifications/prompts/list_changed"})
        case {"id": id}:
            send({"id": id, "error": {"code": -32601, "message": "Method not found"}})
