"""An MCP server made by hand, so that it can send what the SDK's servers never would.

``raw.py stdio|PORT BEHAVIOUR``: the behaviour is that of its start; each tool has its own.
"""

import gzip
import itertools
import json
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

transport, behaviour = sys.argv[1:]
MEGABYTE = b"x" * 1_000_000
TEXT_BLOCK = b'{"type":"text","text":"x"}'
OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
QUESTION = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "elicitation/create",
    "params": {"message": "Your name?", "requestedSchema": OBJECT},
}


def results(tool: str) -> Iterator[bytes]:
    """Yield the JSON of a tool's result in pieces."""
    head = b'{"content":[{"type":"text","text":"done"}],"structuredContent":{"x":'
    match tool:
        case "ping":
            yield b'{"content":[{"type":"text","text":"pong"}]}'
        case "blocks":
            yield b'{"content":[' + b",".join([TEXT_BLOCK] * 5000) + b"]}"
        case "million_blocks":
            yield b'{"content":['
            yield b",".join([TEXT_BLOCK] * 1_000_000) + b"]}"
        case "million_lists":
            yield head + b"[" + b",".join([b"[]"] * 1_000_000) + b"]}}"
        case "endless":
            yield b'{"content":[{"type":"text","text":"'
            yield from itertools.repeat(MEGABYTE)
        case "deep":
            yield head + b"[" * 250 + b"]" * 250 + b"}}"
        case "pattern":
            yield head + b'"' + b"a" * 60 + b'!"}}'
        case "structured":
            yield b'{"content":[],"structuredContent":{"x":[1,2]}}'
        case "table":
            yield b'{"content":[{"type":"text","text":"two rows"}],"_meta":{"x":1},'
            yield b'"structuredContent":{"rows":["one","\\ud800"],"about":{"unit":"m"}}}'
        case "list":
            yield b'{"content":[{"type":"text","text":"2"}],"structuredContent":["one","two"]}'
        case "many_values":  # as many as may be
            yield head + b"[" + b",".join([b'{"a":[]}'] * 33_000) + b"]}}"
        case "ascii_text":
            yield b'{"content":[{"type":"text","text":"' + b"h" * 5_000_000 + b'"}]}'
        case "stalling":
            yield b'{"content":[{"type":"text","text":"' + MEGABYTE
            time.sleep(60)
        case "long_text":
            text = "h" * 7_000_000 + "\N{FROG FACE}"
            yield b'{"content":[{"type":"text","text":"' + text.encode() + b'"}]}'


TOOLS = (
    *("ping", "blocks", "million_blocks", "million_lists", "endless", "deep"),
    *(
        "pattern",
        "structured",
        "table",
        "list",
        "many_values",
        "long_text",
        "ascii_text",
        "stalling",
    ),
)


def definitions() -> list[dict[str, Any]]:
    tools = [{"name": name, "inputSchema": OBJECT} for name in TOOLS]
    pattern = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    tools[TOOLS.index("pattern")]["outputSchema"] = pattern
    if behaviour == "names":
        forged = ["x\nready  y", "x\rready", "x\x1b[2Jy", "x\u2028y", "x\x85y", "", " "]
        tools += [{"name": name, "inputSchema": OBJECT} for name in forged]
    if behaviour == "nested":
        deep: dict[str, Any] = {"type": "string"}
        for _ in range(150):
            deep = {"type": "object", "properties": {"x": deep}}
        tools.append({"name": "deep_schema", "inputSchema": deep})
    return tools


def answer(request: dict[str, Any]) -> Iterator[bytes]:
    """Yield the message that answers a request in pieces."""
    head = b'{"jsonrpc":"2.0","id":' + json.dumps(request["id"]).encode()
    match request["method"]:
        case "initialize":
            info = {"name": "raw", "version": "1"}
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        case "tools/list":
            result = {"tools": definitions()}
        case "tools/call":
            yield head + b',"result":'
            yield from results(request["params"]["name"])
            yield b"}"
            return
        case method:
            message = "line one\nforged  ready  line two" if behaviour == "names" else "no"
            error = {"code": -32601, "message": f"{message}: {method}"}
            yield head + b',"error":' + json.dumps(error).encode() + b"}"
            return
    yield head + b',"result":' + json.dumps(result).encode() + b"}"


def flood() -> Iterator[bytes]:
    """Yield notifications without end."""
    params = {"level": "info", "data": "x"}
    message = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    yield from itertools.repeat(json.dumps(message).encode())


def run_stdio() -> None:
    out = sys.stdout.buffer
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if behaviour == "flood" and request["method"] == "tools/call":
            for message in flood():
                out.write(message + b"\n")
        for piece in answer(request):
            out.write(piece)
        out.write(b"\n")
        out.flush()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass

    def reply(self, kind: str, pieces: Iterator[bytes], **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()

    def do_GET(self) -> None:
        if behaviour == "redirect":
            return self.redirect()
        self.send_error(405)

    def redirect(self) -> None:
        self.send_response(307)
        self.send_header("Location", self.path)
        self.end_headers()
        self.wfile.write(MEGABYTE)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in request or "method" not in request:
            self.send_response(202)
            return self.end_headers()
        starts = request["method"] in ("initialize", "server/discover")
        match behaviour:
            case "endless" if starts:
                begin = b'{"jsonrpc":"2.0","id":1,"result":{"x":"'
                self.reply("application/json", itertools.chain([begin], itertools.repeat(MEGABYTE)))
            case "endless_error" if starts:
                self.send_response(400)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                while True:
                    self.wfile.write(MEGABYTE)
            case "endless_event" if starts:
                begin = b"event: message\ndata: "
                pieces = itertools.chain([begin], itertools.repeat(MEGABYTE))
                self.reply("text/event-stream", pieces)
            case "utf16" if starts:  # its bytes must not be measured as something else
                body = "\ufeff" + "[" * 4_000_000
                self.reply("application/json; charset=utf-16", iter([body.encode("utf-16-le")]))
            case "gzip" if starts:
                bomb = gzip.compress(b" " * 200_000_000, 1)
                self.reply("application/json", iter([bomb]), Content_Encoding="gzip")
            case "drip" if starts:
                self.reply("application/json", itertools.chain([b"{"], self.slowly(b" ")))
            case "redirect":
                self.redirect()
            case "asks" if request["method"] == "tools/call":
                question = b"data: " + json.dumps(QUESTION).encode() + b"\n\n"
                self.reply("text/event-stream", itertools.chain([question], self.slowly(b":\n\n")))
            case status if status.isdecimal() and request["method"] == "tools/call":
                self.send_error(int(status))
            case "silent":
                time.sleep(600)
            case "drops_call" if request["method"] != "tools/call":
                self.reply("application/json", answer(request))
            case "drops" | "drops_call":
                self.close_connection = True
            case "flood" if request["method"] == "tools/call":
                pieces = (b":\n\ndata: " + message + b"\n\n" for message in flood())
                self.reply("text/event-stream", pieces)
            case "comments" if request["method"] == "tools/call":
                self.reply("text/event-stream", itertools.repeat(b":\n" * 500_000))
            case "events":
                pieces = itertools.chain([b"retry: 0\r\ndata: "], answer(request), [b"\r\n\r\n"])
                self.reply("text/event-stream", pieces)
            case _:
                self.reply("application/json", answer(request))

    def slowly(self, piece: bytes) -> Iterator[bytes]:
        while True:
            time.sleep(0.05)
            yield piece


if transport == "stdio":
    run_stdio()
else:
    ThreadingHTTPServer.request_queue_size = 64
    server = ThreadingHTTPServer(("127.0.0.1", int(transport)), Handler)
    server.daemon_threads = True
    server.serve_forever()
