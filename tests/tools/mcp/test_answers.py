"""What a server says reaches the model: errors, HTTP errors, and answers that are nearly JSON-RPC."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.hosts import MakeHost
from tests.support.odd_mcp import Answer, http_server, json_answer, reply, stdio_server, text_result
from tools.config.entry import read_entry
from tools.config.servers import ConfigError, ServerConfig
from tools.mcp.host import Host
from tools.types import ToolResult

pytestmark = pytest.mark.slow
LIMITED = "Rate limit exceeded: 10 calls a minute"


async def start(make_host: MakeHost, config: ServerConfig) -> Host:
    host = make_host(config)
    await host.start()
    await host.wait_started()
    assert host.server_states()[0].status == "ready", host.server_states()
    return host


async def call(host: Host, name: str = "t", **arguments: Any) -> ToolResult:
    """Call a tool; an answer must not take as long as a timeout."""
    tool = host.find_tool(f"{host.server_states()[0].name}.{name}")
    assert tool is not None
    return await asyncio.wait_for(host.call(tool, arguments), 20)


@pytest.mark.parametrize(
    "code", [-32000, -32001, -32002, -32042, -32401, -32600, -32603, -32700, -1, 0]
)
async def test_error_of_any_code_keeps_its_message_and_data(make_host: MakeHost, code: int) -> None:
    error = {"code": code, "message": LIMITED, "data": {"retry_after": 30}}
    host = await start(
        make_host, stdio_server({"t": reply(error=error), "u": reply(result=text_result("ok"))})
    )
    for _ in range(2):
        result = await call(host)
        assert result.failure == "protocol" and result.code == code
        assert result.text == (
            f'the server odd answered with an error: {LIMITED} ({{"retry_after": 30}})'
        )
    assert (await call(host, "u")).text == "ok"


@pytest.mark.parametrize(
    "message", ["Connection closed", "Request 'tools/call' timed out", LIMITED]
)
async def test_error_in_the_words_of_the_sdk_keeps_the_session(
    make_host: MakeHost, message: str
) -> None:
    sessions: list[str] = []

    def answer(request: dict[str, Any], session: str) -> Answer:
        sessions.append(session)
        error = {"code": -32000 if len(sessions) % 2 else -32001, "message": message}
        return json_answer(id=request["id"], error=error)

    with http_server(answer) as url:
        host = await start(make_host, ServerConfig("odd", url=url))
        for _ in range(3):
            text = (await call(host)).text
            assert text == f"the server odd answered with an error: {message}"
    assert len(sessions) == 3 and len(set(sessions)) == 1


LOST = [
    ({"Content-Type": "application/json"}, {"code": -32001, "message": "Session not found"}),
    ({"Content-Type": "application/json"}, {"code": -32600, "message": "Session not found"}),
    ({"Content-Type": "application/json"}, {"code": -32601, "message": "Method not found"}),
    ({"Content-Type": "application/json"}, {"code": -32000, "message": "Session not found"}),
    ({"Content-Type": "application/json"}, {"code": -32602, "message": "Invalid session"}),
    ({"Content-Type": "text/plain"}, None),
    ({}, None),
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("headers", "error"), LOST, ids=str)
async def test_any_404_on_a_session_begins_a_new_one(
    make_host: MakeHost, headers: dict[str, str], error: Any
) -> None:
    used: list[str] = []

    def answer(request: dict[str, Any], session: str) -> Answer:
        if session in used:
            body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}) if error else ""
            return 404, headers, body.encode()
        used.append(session)
        return json_answer(id=request["id"], result=text_result(f"call {len(used)}"))

    with http_server(answer) as url:
        host = await start(make_host, ServerConfig("odd", url=url))
        assert [(await call(host)).text for _ in range(3)] == ["call 1", "call 2", "call 3"]


async def test_call_on_lost_session_repeated_once(make_host: MakeHost) -> None:
    sessions: list[str] = []

    def answer(request: dict[str, Any], session: str) -> Answer:
        sessions.append(session)
        return json_answer(404, id=None, error={"code": -32001, "message": "Session not found"})

    with http_server(answer) as url:
        host = await start(make_host, ServerConfig("odd", url=url))
        text = (await call(host)).text
    assert text == (
        "the server odd lost the session again: it answered with an error: Session not found"
    )
    assert len(sessions) == len(set(sessions)) == 2


PAGE = b"<html><head><title>502 Upstream is down</title></head><body><h1>x</h1></body></html>"
BODIES: list[tuple[int, str, bytes, str]] = [
    (429, "json", b'{"error":"10 calls a minute"}', ": 10 calls a minute"),
    (403, "json", b'{"error":"plan does not include this tool"}', ": plan does not include"),
    (500, "json", b'{"message":"database is locked"}', ": database is locked"),
    (400, "problem+json", b'{"title":"Bad","detail":"city is missing"}', ": city is missing"),
    (422, "json", b'{"errors":[{"message":"n is no number"}]}', ": n is no number"),
    (413, "plain", b"at most\n1 MB", ": at most 1 MB"),
    (502, "html", PAGE, ": 502 Upstream is down"),
    (503, "plain", b"x" * 5000, ": " + "x" * 499 + "…"),
    (500, "plain", b"Internal Server Error", ""),
    (500, "json", b"", ""),
]


@pytest.mark.parametrize(("status", "kind", "body", "words"), BODIES, ids=str)
async def test_http_error_body_is_reported(
    make_host: MakeHost, status: int, kind: str, body: bytes, words: str
) -> None:
    headers = {"Content-Type": f"application/{kind}" if "json" in kind else f"text/{kind}"}
    with http_server(lambda *_: (status, headers, body)) as url:
        host = await start(make_host, ServerConfig("odd", url=url))
        text = (await call(host)).text
    assert text.startswith(f"the server odd answered with HTTP {status}{words}")
    assert len(text) < 600 and "\n" not in text and (words or text.endswith(str(status)))


async def test_http_retry_after_is_reported(make_host: MakeHost) -> None:
    with http_server(lambda *_: (429, {"Retry-After": "30"}, b"")) as url:
        host = await start(make_host, ServerConfig("odd", url=url))
        text = (await call(host)).text
    assert text == "the server odd answered with HTTP 429: Too Many Requests (retry after 30 s)"


TEXT = '"result":{"content":[{"type":"text","text":"'
NEARLY: list[tuple[str, str]] = [
    (f'{{"jsonrpc":"2.0","id":$ID,{TEXT}caf\xe9 \xff"}}]}}}}', "caf\ufffd \ufffd"),
    (f'{{"jsonrpc":"2.0","id":$ID,{TEXT}red\x1b[0m"}}]}}}}', "red\x1b[0m"),
    (f'\xef\xbb\xbf{{"jsonrpc":"2.0","id":$ID,{TEXT}bom"}}]}}}}', "bom"),
    (f'[{{"jsonrpc":"2.0","id":$ID,{TEXT}batch"}}]}}}}]', "batch"),
    (f'{{"id":$ID,{TEXT}no version"}}]}}}}', "no version"),
    (f'{{"jsonrpc":"2.0","id":$ID.0,{TEXT}float"}}]}}}}', "float"),
    ('{"jsonrpc":"2.0","id":$ID,"result":"bare text"}', "bare text"),
    ('{"jsonrpc":"2.0","id":$ID,"error":"no such row"}', "an error: no such row"),
    ('{"jsonrpc":"2.0","id":$ID,"error":{"code":"E42","message":"no row"}}', "E42: no row"),
    ('{"jsonrpc":"2.0","id":$ID,"error":{"message":"no code"}}', "an error: no code"),
    ('{"jsonrpc":"2.0","id":$ID,"result":{"content":[}', "an answer that is not valid JSON"),
    ('{"jsonrpc":"2.0","result":{"content":[},"id":$ID}', "an answer that is not valid JSON"),
    ('{"jsonrpc":"2.0","id":$ID}', "an answer that is not valid MCP"),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("line", "words"), NEARLY, ids=[str(n) for n in range(len(NEARLY))])
@pytest.mark.parametrize("transport", ["stdio", "json", "events"])
async def test_answer_that_is_nearly_json_rpc_ends_the_call_at_once(
    make_host: MakeHost, transport: str, line: str, words: str
) -> None:
    def answer(request: dict[str, Any], session: str) -> Answer:
        body = line.replace("$ID", json.dumps(request["id"])).encode("latin-1")
        if transport == "json":
            return 200, {"Content-Type": "application/json"}, body
        event = b"event: message\ndata: " + body + b"\n\n"
        return 200, {"Content-Type": "text/event-stream"}, event

    with http_server(answer) as url:
        stdio = stdio_server({"t": line, "u": reply(result=text_result("ok"))})
        config = stdio if transport == "stdio" else ServerConfig("odd", url=url)
        host = await start(make_host, config)
        text = (await call(host)).text
        assert text.endswith(words) or (words in text and "answer" in words), text
        assert "pydantic" not in text and "\n" not in text
        if transport == "stdio":
            assert (await call(host, "u")).text == "ok"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"id": None, "error": {"code": -32000, "message": "no id"}}, "an error: no id"),
        ({"id": "other", "result": text_result("other id")}, "other id"),
    ],
)
async def test_http_answer_belongs_to_its_request(
    make_host: MakeHost, fields: dict[str, Any], words: str
) -> None:
    with http_server(lambda *_: json_answer(**fields)) as url:
        host = await start(make_host, ServerConfig("odd", url=url))
        assert (await call(host)).text.endswith(words)


async def test_http_answer_that_breaks_off_ends_the_call(make_host: MakeHost) -> None:
    def answer(request: dict[str, Any], session: str) -> Answer:
        headers = {"Content-Type": "application/json", "Content-Length": "1000"}
        return 200, headers, b'{"jsonrpc":"2.0",'

    with http_server(answer) as url:
        host = await start(make_host, ServerConfig("odd", url=url))
        assert (await call(host)).text == "the server odd was cut off: its answer broke off"


SECRET = "sk-very-secret-value"


@pytest.mark.parametrize("end", ["\n", "\r\n", " ", "\t\n"])
async def test_header_value_without_its_ends(make_host: MakeHost, end: str) -> None:
    seen: list[tuple[str, dict[str, str]]] = []
    entry = {"headers": {"Authorization": "Bearer ${TOKEN}", "X-Empty": "${NONE:-}"}}

    def answer(request: dict[str, Any], session: str) -> Answer:
        return json_answer(id=request["id"], result=text_result("ok"))

    with http_server(answer, seen=seen) as url:
        config = read_entry("odd", {**entry, "url": url}, {"TOKEN": SECRET + end})
        assert (await call(await start(make_host, config))).text == "ok"
    for _, headers in seen:
        assert headers["Authorization"] == f"Bearer {SECRET}" and headers["X-Empty"] == ""
        assert headers["User-Agent"].startswith("agent/")


@pytest.mark.parametrize("name", ["X-Key", "Authorization", "X Key: sk-very-secret-value"])
@pytest.mark.parametrize("value", ["a\nb", "a\x00b", "ü", "a\rb"])
def test_header_that_cannot_be_sent_is_named_without_its_value(name: str, value: str) -> None:
    entry = {"url": "http://127.0.0.1:9/", "headers": {name: SECRET + value}}
    with pytest.raises(ConfigError) as raised:
        read_entry("odd", entry, {})
    message = str(raised.value)
    assert "header X" in message or f"header {name} " in message
    assert "secret" not in message and "b" not in message.removeprefix("the").split()


@pytest.mark.parametrize("status", [200, 401, 403, 500])
async def test_header_value_that_the_server_repeats_is_hidden(
    make_host: MakeHost, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    text = f"{SECRET} is not valid"

    def answer(request: dict[str, Any], session: str) -> Answer:
        error = {"code": -32000, "message": text, "data": {"got": f"Bearer {SECRET}"}}
        return json_answer(status, id=request["id"], error=error)

    with http_server(answer) as url:
        headers = {"Authorization": f"Bearer {SECRET}"}
        host = await start(make_host, ServerConfig("odd", url=url, headers=headers))
        result = await call(host)
    assert result.failed and SECRET not in result.text + str(result.content) + caplog.text


async def test_credentials_of_the_url_are_sent(make_host: MakeHost) -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    def answer(request: dict[str, Any], session: str) -> Answer:
        return json_answer(id=request["id"], result=text_result("ok"))

    with http_server(answer, seen=seen) as url:
        url = url.replace("http://", "http://user:pass@")
        assert (await call(await start(make_host, ServerConfig("odd", url=url)))).text == "ok"
    assert {headers["Authorization"] for _, headers in seen} == {"Basic dXNlcjpwYXNz"}
