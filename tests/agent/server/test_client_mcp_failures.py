"""MCP servers that a request brings and that cannot be used: the client reads why, and can act."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agent.server import client_mcp
from tests.support.endpoint import Serve, api_error
from tests.support.invariants import check
from tests.support.requests import PLAIN_SERVER
from tests.support.scripts import final


@contextlib.contextmanager
def odd_server(status: int, body: bytes | None, kind: str) -> Iterator[str]:
    """A site that answers every request with this; None: with nothing, until it ends."""
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if body is None:
                ended.wait(60)
                return
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST
        do_DELETE = do_POST

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        site.daemon_threads = True
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_address[1]}/mcp"
        ended.set()
        site.shutdown()


def tool(url: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "far", "server_url": url, **fields}


FAILURES = [
    (401, b"{}", "application/json", {}, "'authorization' of the request's mcp tool"),
    (401, b"{}", "application/json", {"authorization": "x"}, "rejects the request's authorization"),
    (200, None, "application/json", {}, "did not answer within 1 s"),
    (200, b"<html>", "text/html", {}, "not as an MCP server does"),
    (200, b"nonsense", "application/json", {}, "not as an MCP server does"),
    (200, b"data: nonsense\n\n", "text/event-stream", {}, "did not answer"),
    (500, b"oops", "text/plain", {}, "HTTP 500"),
]


@pytest.mark.parametrize(("status", "body", "kind", "fields", "words"), FAILURES, ids=str)
async def test_failing_client_server_is_listed_with_error(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    body: bytes | None,
    kind: str,
    fields: dict[str, Any],
    words: str,
) -> None:
    if body is None or kind == "text/event-stream":  # which may go on
        monkeypatch.setattr(client_mcp, "STARTUP_SECONDS", 1.0)
    served = await serve(final("Without it."), server={"private_urls": True})
    with odd_server(status, body, kind) as url:
        response = check(await served.stream(input="x", tools=[tool(url, **fields)]))
    listed, message = response["output"]
    assert (listed["type"], listed["server_label"], listed["tools"]) == (
        "mcp_list_tools",
        "far",
        [],
    )
    assert words in listed["error"] and len(listed["error"]) > 10
    assert "agent " not in listed["error"] and "settings" not in listed["error"]
    assert "Traceback" not in listed["error"] and "Error(" not in listed["error"]
    assert message["content"][0]["text"] == "Without it."


async def test_allowed_tools_star_and_nothing(serve: Serve) -> None:
    served = await serve(final("ok"), tools="plain", mcp=(PLAIN_SERVER,))
    plain = {"type": "mcp", "server_label": "plain"}
    listed = []
    for allowed in (None, ["*"], {"tool_names": ["*"]}, ["nothing"], []):
        request = {"input": "x", "tools": [{**plain, "allowed_tools": allowed}]}
        response = check(await served.stream(**request))
        listed.append(response["output"][0])
    every, *stars, nothing, empty = listed
    assert every["tools"] and all(star["tools"] == every["tools"] for star in stars)
    for none in (nothing, empty):
        assert none["tools"] == [] and "'allowed_tools' allows none" in none["error"]


async def test_connector_is_refused(serve: Serve) -> None:
    served = await serve(final("ok"))
    connector = tool(None, connector_id="connector_gmail")
    error = api_error(await served.post({"input": "x", "tools": [connector]}), 400)
    assert error["param"] == "tools[0].connector_id" and "server_url" in error["message"]
