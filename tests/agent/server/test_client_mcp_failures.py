"""MCP servers that a request brings and that cannot be used: the client reads why, and can act."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from agent.server.input import declared_tools
from tests.support.endpoint import Serve, api_error
from tests.support.invariants import check
from tests.support.requests import plain_option
from tests.support.scripts import final
from tests.support.waiting import HANG_SECONDS


@contextlib.contextmanager
def odd_server(status: int, body: bytes | None, kind: str) -> Iterator[str]:
    """A site that answers every request with this; None: with nothing, until it ends."""
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if body is None:
                ended.wait(HANG_SECONDS)
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


@contextlib.contextmanager
def streamable_server(answers: dict[str, tuple[int, Any]]) -> Iterator[str]:
    """A server of the newer transport alone (a GET is refused) that answers methods with a status and
    the rest of a JSON-RPC message, others as an MCP server does."""
    info = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
    hello = {"result": {**info, "serverInfo": {"name": "x", "version": "1"}}}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, rest = answers.get(sent["method"], (200, hello))
            body = json.dumps({"jsonrpc": "2.0", "id": sent.get("id"), **rest}).encode()
            self._answer(status if "id" in sent else 202, body if "id" in sent else b"")

        def do_GET(self) -> None:
            self._answer(405, b"")

        do_DELETE = do_GET

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("location", "http://127.0.0.1:9/elsewhere")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        site.daemon_threads = True
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_address[1]}/mcp"
        site.shutdown()


def tool(url: str | None, **fields: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "far", "server_url": url, **fields}


FAILURES = [
    (200, None, "application/json", {}, "did not answer within 1 s"),
    (200, b"<html>", "text/html", {}, "not as an MCP server does"),
    (200, b"nonsense", "application/json", {}, "not as an MCP server does"),
    (200, b"data: nonsense\n\n", "text/event-stream", {}, "did not answer"),
    (500, b"oops", "text/plain", {}, "HTTP 500"),
]


@pytest.mark.sampled(5)
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
        monkeypatch.setattr(declared_tools, "STARTUP_SECONDS", 1.0)
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


@pytest.mark.parametrize("stream", [False, True])
async def test_client_server_that_wants_a_login_fails_the_request(
    serve: Serve, stream: bool
) -> None:
    served = await serve(final("Without it."), server={"private_urls": True})
    with odd_server(401, b"{}", "application/json") as url:
        for fields, words in (
            ({}, "'authorization' of the request's mcp tool"),
            ({"authorization": "x"}, "rejects the request's authorization"),
        ):
            body = {"input": "x", "tools": [tool(url, **fields)], "stream": stream}
            error = api_error(await served.post(body), 424)
            assert (error["type"], error["param"]) == ("external_connector_error", "tools[0]")
            assert words in error["message"] and "'far'" in error["message"]
        known = {"type": "mcp_list_tools", "id": "l", "server_label": "far", "tools": []}
        items = [known, {"role": "user", "content": "x"}]
        answer = await served.post({"input": items, "tools": [tool(url)]})
        assert answer.status_code == 200, answer.text
    assert len(served.turns) == 1


BROKEN = {"error": {"code": -32000, "message": "the database is down"}}
"""The code is also the SDK's for a connection that has ended."""
FIRST_FAILURES: list[tuple[str, int, Any, str]] = [
    ("initialize", 403, {}, "requires a login (HTTP 403)"),
    ("initialize", 404, {}, "HTTP 404"),
    ("initialize", 302, {}, "Redirect to http://127.0.0.1:9/elsewhere not followed"),
    ("initialize", 200, BROKEN, "the database is down"),
    ("tools/list", 200, BROKEN, "the database is down"),
    ("tools/list", 200, {"result": {"tools": [{"name": 5}]}}, "not valid MCP"),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("method", "status", "rest", "words"), FIRST_FAILURES, ids=str)
async def test_failure_is_that_of_the_transport_that_the_server_speaks(
    serve: Serve, method: str, status: int, rest: Any, words: str
) -> None:
    served = await serve(final("Without it."), server={"private_urls": True})
    with streamable_server({method: (status, rest)}) as url:
        response = check(await served.stream(input="x", tools=[tool(url)]))
    error = response["output"][0]["error"]
    assert words in error and "HTTP 405" not in error  # a port may be 40525


@pytest.mark.parametrize(
    "url",
    ["ftp://x/y", "http://", "file:///etc/passwd", "http://x:99999/", "http://x:y/", "http://[::"],
)
async def test_address_that_is_none_is_refused(serve: Serve, url: str) -> None:
    served = await serve(final("ok"), server={"private_urls": True})
    error = api_error(await served.post({"input": "x", "tools": [tool(url)]}), 400)
    assert error["param"] == "tools[0].server_url" and "http" in error["message"]


@pytest.mark.long
async def test_allowed_tools_star_and_nothing(serve: Serve) -> None:
    served = await serve(final("ok"), tools="plain", mcp=(plain_option(),))
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
