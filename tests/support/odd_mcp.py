"""MCP servers of a test's own answers, word by word: over stdio, and over HTTP with sessions."""

import contextlib
import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tools.config.servers import ServerConfig

SCHEMA = {"type": "object", "properties": {}}
START = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "odd", "version": "1"},
}
_LOOP = """
import json, sys
replies = json.loads(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    number, method = request.get("id"), request.get("method")
    if number is None or method is None:
        continue
    key = method if method != "tools/call" else request["params"]["name"]
    lines = replies.get(key, replies["other"])
    for text in lines if isinstance(lines, list) else [lines]:
        text = text.replace("$ID", json.dumps(number))
        sys.stdout.buffer.write(text.encode("latin-1") + b"\\n")
    sys.stdout.buffer.flush()
"""


def reply(**fields: Any) -> str:
    """Return the line of an answer; ``$ID`` stands for the id of its request."""
    return json.dumps({"jsonrpc": "2.0", "id": 0, **fields}).replace('"id": 0', '"id": $ID', 1)


def text_result(text: str, **fields: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **fields}


def definition(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **fields}


def stdio_server(
    calls: dict[str, Any] | None = None,
    tools: list[Any] | None = None,
    *,
    start: dict[str, Any] | None = None,
    **settings: Any,
) -> ServerConfig:
    """Return a server whose tool of each name in ``calls`` answers with that line, or lines."""
    calls = calls or {}
    listed = tools if tools is not None else [definition(name) for name in calls]
    replies = {
        "other": reply(error={"code": -32601, "message": "Method not found"}),
        "initialize": reply(result=start or START),
        "tools/list": reply(result={"tools": listed}),
        **calls,
    }
    args = ("-I", "-c", _LOOP, json.dumps(replies))
    return ServerConfig("odd", command=sys.executable, args=args, **settings)


Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body of an HTTP answer."""


def json_answer(status: int = 200, headers: dict[str, str] | None = None, **fields: Any) -> Answer:
    body = json.dumps({"jsonrpc": "2.0", **fields}).encode()
    return status, {"Content-Type": "application/json", **(headers or {})}, body


@contextlib.contextmanager
def http_server(
    on_call: Callable[[dict[str, Any], str], Answer],
    tools: list[Any] | None = None,
    seen: list[tuple[str, dict[str, str]]] | None = None,
) -> Iterator[str]:
    """Serve; ``on_call`` answers a ``tools/call`` in a session. ``seen``: gets methods and headers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

        def _send(self, answer: Answer) -> None:
            status, headers, body = answer
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            if "Content-Length" in headers:  # of a body that breaks off
                self.close_connection = True

        def do_GET(self) -> None:
            self._send((405, {}, b""))

        def do_DELETE(self) -> None:
            self._send((200, {}, b""))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number, method = request.get("id"), request.get("method")
            session = self.headers.get("Mcp-Session-Id") or ""
            if seen is not None:
                seen.append((method, dict(self.headers)))
            if method == "initialize":
                headers = {"Mcp-Session-Id": uuid.uuid4().hex}
                self._send(json_answer(headers=headers, id=number, result=START))
            elif number is None:
                self._send((202, {}, b""))
            elif method == "tools/list":
                result = {"tools": tools or [definition("t")]}
                self._send(json_answer(id=number, result=result))
            elif method == "tools/call":
                self._send(on_call(request, session))
            else:
                error = {"code": -32601, "message": "Method not found"}
                self._send(json_answer(id=number, error=error))

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/mcp"
        finally:
            running.shutdown()
