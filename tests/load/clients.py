"""Simulated clients: patient ones, slow ones, some that disconnect, and some that send anything."""

import asyncio
import json
import random
import re
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
from websockets.asyncio.client import connect

from tests.load.server_process import ServerProcess
from tests.support.endpoint import events_of
from tests.support.invariants import TERMINAL, check
from tests.support.request_fuzzer import FuzzedRequest, RequestFuzzer
from tests.support.waiting import HANG_SECONDS

PROMPTS = [
    "hello", "What is 12*34?", "Who are you?", "thanks", "Multiply 123*456.", "Tell me about yourself",
]  # fmt: skip
CODE_INTERPRETER = {"type": "mcp", "server_label": "code_interpreter", "server_url": "IGNORED"}
TOOL_PROMPT = "Multiply 123*456 using the mcp.code_interpreter tool."
RESPONSE_ID_PATTERN = re.compile(r'"response":{"id":"(resp_\w+)"')
POST_HEAD = b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n"
REFUSAL_STATUSES = {400, 404, 405, 413, 422, 429}


class ServerFaultError(Exception):
    """The server did what it must not do; the message says what."""


@dataclass
class SimulatedClients:
    """Clients of one server, and counts of what happened.

    Each action is one client; it returns the id of a response that nobody needs any more, or "".
    """

    program: ServerProcess
    http: httpx2.AsyncClient
    fuzzer: RequestFuzzer
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    """Number of clients by action, of responses by status, of refusals by HTTP status."""
    accepted: set[str] = field(default_factory=set)
    """Ids of responses that the server has accepted, and so has to store."""
    deleted: set[str] = field(default_factory=set)

    def action_weights(self) -> dict[Callable[[], Awaitable[str]], int]:
        """The actions and how often they are chosen, relative to each other."""
        return {
            self.read_stream: 20, self.read_body: 10, self.branch_turns: 8, self.drop_stream: 12,
            self.drop_request: 5, self.read_slowly: 4, self.call_tool: 1, self.replay_background: 5,
            self.retrieve_or_delete: 5, self.cancel: 5, self.truncate_request: 4,
            self.use_websocket: 4, self.fuzz: 20, self.send_garbage: 4,
        }  # fmt: skip

    async def run_action(self) -> None:
        """Run a random action, first those that have not run yet. Raises ServerFaultError."""
        weights = self.action_weights()
        if unused := [action for action in weights if not self.counts[action.__name__]]:
            action = self.rng.choice(unused)
        else:
            (action,) = self.rng.choices(list(weights), list(weights.values()))
        self.counts[action.__name__] += 1
        async with asyncio.timeout(HANG_SECONDS):
            if response_id := await action():
                self.fuzzer.ids.append(response_id)  # others may now read and delete it

    # --- clients that read to the end ---

    async def read_stream(self, **fields: Any) -> str:
        """Read a stream to its end; returns the response's id."""
        return self._read_events(await self._post(self._body(stream=True, **fields)))

    def _read_events(self, answer: httpx2.Response) -> str:
        if answer.status_code == 429:
            return self.check_refusal(answer)
        if answer.status_code != 200:
            raise ServerFaultError(f"{answer.status_code} {answer.text[:300]}")
        response = check(events_of(answer.text))
        return self._record_response(response)

    async def read_body(self) -> str:
        """Read a response that is not streamed."""
        answer = await self._post(self._body())
        if answer.status_code == 200:
            return self._record_response(answer.json())
        return self.check_refusal(answer)

    async def branch_turns(self) -> str:
        """Continue a response twice, at the same time."""
        if first := await self.read_stream():
            await asyncio.gather(*(self.read_stream(previous_response_id=first) for _ in range(2)))
        return first

    async def call_tool(self) -> str:
        """Have the model call the Python tool."""
        return await self.read_stream(input=TOOL_PROMPT, tools=[CODE_INTERPRETER])

    async def read_slowly(self) -> str:
        """Read a long stream slowly, in small pieces."""
        body = self._body(stream=True, top_logprobs=20)
        content = await self._send_raw(
            body, lambda: asyncio.sleep(self.rng.random() / 200), small=True
        )
        text = content.partition(b"\r\n\r\n")[2].decode()
        if "data: [DONE]" in text:
            ends = sum(f"event: {kind}\n" in text for kind in TERMINAL)
            if ends != 1:
                raise ServerFaultError(f"{ends} terminal events")
        return ""

    async def use_websocket(self) -> str:
        """Run two turns over a WebSocket; sometimes disconnect within the second."""
        address = f"{self.program.url}/responses".replace("http", "ws", 1)
        previous = ""
        async with connect(address, max_size=None) as socket:
            for _ in range(2):
                fields = {"previous_response_id": previous} if previous else {}
                await socket.send(json.dumps({"type": "response.create", **self._body(**fields)}))
                events = [json.loads(await socket.recv())]
                if events[0]["type"] == "error":
                    return previous  # too many requests
                self.accepted.add(events[0]["response"]["id"])
                if previous and self.rng.random() < 0.3:
                    return previous
                while events[-1]["type"] not in TERMINAL:
                    events.append(json.loads(await socket.recv()))
                previous = self._record_response(check(events))
        return previous

    async def replay_background(self) -> str:
        """Run a response in the background, then read its complete stream."""
        answer = await self._post(self._body(background=True, stream=False))
        if answer.status_code != 200:
            return self.check_refusal(answer)
        path = f"{self.program.url}/responses/{self._record_response(answer.json())}"
        return self._read_events(await self.http.get(path, params={"stream": "true"}))

    # --- clients that disconnect or cancel ---

    async def drop_stream(self) -> str:
        """Disconnect in the middle of a stream."""
        return await self._disconnect_after(self._body(stream=True), self.rng.randint(0, 6000))

    async def drop_request(self) -> str:
        """Disconnect while a response that is not streamed is generated."""
        return await self._disconnect_after(self._body(), 0)

    async def truncate_request(self) -> str:
        """Disconnect in the middle of the request."""
        return await self._disconnect_after(self._body(), 0, share=self.rng.random())

    async def cancel(self) -> str:
        """Cancel a background response by its id while its stream is open."""
        url = f"{self.program.url}/responses"
        body = self._body(stream=True) | {"background": True, "store": True}
        async with self.http.stream("POST", url, json=body) as answer:
            if answer.status_code != 200:
                await answer.aread()
                return self.check_refusal(answer)
            text = ""
            async for chunk in answer.aiter_text():
                text += chunk
                if match := RESPONSE_ID_PATTERN.search(text):
                    break
            assert match
            self.accepted.add(match[1])
            cancelled = await self.http.post(f"{url}/{match[1]}/cancel")
            if cancelled.json()["status"] not in ("cancelled", "completed", "incomplete"):
                raise ServerFaultError(f"after cancel: {cancelled.text[:300]}")
        return match[1]

    async def _disconnect_after(self, body: dict[str, Any], after: int, share: float = 1.0) -> str:
        content = await self._send_raw(body, None, after=after, share=share)
        match = RESPONSE_ID_PATTERN.search(content.decode(errors="replace"))
        if match:
            self.accepted.add(match[1])
        return match[1] if match else ""

    # --- clients that send anything ---

    async def fuzz(self) -> str:
        """Send a fuzzed request: the answer is a response or a refusal."""
        request = self.fuzzer.request()
        headers = {"content-type": "application/json"}
        answer = await self.http.request(
            request.method, self.program.root + request.path, content=request.body, headers=headers
        )
        if answer.status_code == 200:
            kind = answer.headers["content-type"].partition(";")[0]
            if kind == "text/event-stream" and request.path == "/v1/responses":
                self.counts["fuzzed streams"] += 1
                check(events_of(answer.text))
            elif kind == "application/json" and request.method == "DELETE":
                self.deleted.add(answer.json()["id"])
            elif kind == "application/json" and answer.json().get("object") == "response":
                self.counts["fuzzed responses"] += 1
        else:
            self.check_refusal(answer, request)
        return ""

    async def send_garbage(self) -> str:
        """Send what is not quite HTTP, or not at all."""
        rng = self.rng
        content = rng.choice([
            rng.randbytes(200), b"POST /v1/responses HTTP/1.1\r\n", b"\r\n" * 50,
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
            POST_HEAD + b"content-length: -1\r\n\r\n{}",
            POST_HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
            b"GET /v1/responses/%00%ff HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            b"GET /health?\xff\xfe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        ])  # fmt: skip
        reader, writer = await asyncio.open_connection(*self.program.host)
        with suppress(ConnectionError):
            writer.write(content)
            writer.write_eof()
            answer = await reader.read()
            if answer[9:12] >= b"500":
                raise ServerFaultError(f"{content[:80]!r}: {answer[:300]!r}")
        writer.close()
        return ""

    async def retrieve_or_delete(self) -> str:
        """Retrieve an earlier response and its input items, or delete it."""
        response_id = self.rng.choice(self.fuzzer.ids[-50:] or ["none"])
        url = f"{self.program.url}/responses/{response_id}"
        if self.rng.random() < 0.2:
            self.deleted.add(response_id)
            answers = [await self.http.delete(url)]
        else:
            answers = [await self.http.get(url), await self.http.get(f"{url}/input_items")]
        for answer in answers:
            if answer.status_code not in (200, 404):
                raise ServerFaultError(f"{answer.request.method} {answer.url}: {answer.text[:300]}")
        return ""

    # --- requests and answers ---

    def _body(self, **fields: Any) -> dict[str, Any]:
        rng = self.rng
        body = {"input": rng.choice(PROMPTS), "max_output_tokens": rng.randint(16, 60)}
        if rng.random() < 0.3:
            body |= {"temperature": 1.0, "seed": rng.randrange(1000)}
        return {**body, **fields}

    async def _post(self, body: dict[str, Any]) -> httpx2.Response:
        return await self.http.post(f"{self.program.url}/responses", json=body)

    def _record_response(self, response: dict[str, Any]) -> str:
        response_id: str = response["id"]
        self.counts[response["status"]] += 1
        self.accepted.add(response_id)
        return response_id

    def check_refusal(self, answer: httpx2.Response, request: FuzzedRequest | None = None) -> str:
        """Check that an error has OpenAI's shape. Raises ServerFaultError."""
        self.counts[str(answer.status_code)] += 1
        body = answer.json() if answer.status_code in REFUSAL_STATUSES else {}
        if not body.get("error", {}).get("message"):
            raise ServerFaultError(f"{request}: {answer.status_code} {answer.text[:300]}")
        return ""

    async def _send_raw(
        self,
        body: dict[str, Any],
        pause: Callable[[], Awaitable[None]] | None,
        *,
        after: int | None = None,
        share: float = 1.0,
        small: bool = False,
    ) -> bytes:
        """Send a request over a socket of its own; returns what was read.

        ``share``: of the request that is sent. ``after``: disconnect after reading so many bytes.
        ``pause`` is awaited after each read. ``small``: with a small receive buffer.
        """
        connection = socket.socket()
        if small:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, self.program.host)
        reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
        content = json.dumps(body).encode()
        head = (
            "POST /v1/responses HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        request = head.encode() + content
        received = bytearray()
        with suppress(ConnectionError):
            writer.write(request[: int(len(request) * share)])
            await writer.drain()
            while after is None or len(received) < after:
                chunk = await reader.read(2048)
                if not chunk:
                    break
                received += chunk
                if pause is not None:
                    await pause()
        if self.rng.random() < 0.5:
            writer.transport.abort()
        writer.close()
        return bytes(received)
