"""A local stand-in for the MCP registry: ``with serve_registry(*servers) as url``."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

META = "io.modelcontextprotocol.registry/official"


@contextlib.contextmanager
def serve_registry(*servers: dict[str, Any], page_size: int = 100) -> Iterator[str]:
    """Serve these ``server.json`` objects; one's ``status`` is the registry's, not its own.

    ``page_size``: servers of one answer at most; 0: no answer has any, and each names a next one.
    """
    listed = [
        {
            "server": {key: value for key, value in server.items() if key != "status"},
            "_meta": {META: {"status": server.get("status", "active"), "isLatest": True}},
        }
        for server in servers
    ]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            match [unquote(part) for part in address.path.split("/")[1:]]:
                case ["v0.1", "servers"]:
                    query = {key: values[0] for key, values in parse_qs(address.query).items()}
                    text, start = query.get("search", ""), int(query.get("cursor", 0))
                    found = [item for item in listed if text in item["server"]["name"]]
                    end = start + min(page_size, int(query.get("limit", 30)))
                    metadata: dict[str, Any] = {"count": len(found[start:end])}
                    if end < len(found):
                        metadata["nextCursor"] = str(end)
                    self.answer(200, {"servers": found[start:end], "metadata": metadata})
                case ["v0.1", "servers", name, "versions", version]:
                    for item in listed:
                        versions = ("latest", item["server"]["version"])
                        if item["server"]["name"] == name and version in versions:
                            return self.answer(200, item)
                    self.answer(404, {"error": "Server not found"})
                case _:
                    self.answer(404, {"error": "Not found"})

        def answer(self, status: int, body: object) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
