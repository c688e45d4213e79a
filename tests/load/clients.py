"""Clients as they come: patient ones, slow ones, some that leave, and some that send anything."""

from __future__ import annotations

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

from tests.load.bodies import Fuzzer
from tests.load.program import Program
from tests.support.endpoint import events_of
from tests.support.invariants import TERMINAL, check

PROMPTS = [
    "hello", "What is 12*34?", "Who are you?", "thanks", "Multiply 123*456.", "Tell me about yourself",
]  # fmt: skip
CODE = {"type": "mcp", "server_label": "code_interpreter", "server_url": "IGNORED"}
TOOL = "Multiply 123*456 using the mcp.code_interpreter tool."
BEGUN = re.compile(r'"response":{"id":"(resp_\w+)"')
POST = b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n"
REFUSED = {400, 404, 405, 413, 422, 429}


class Fault(Exception):
    """The server did what it must not do."""


@dataclass
class Clients:
    """All of them, and what they saw."""

    program: Program
    http: httpx2.AsyncClient
    fuzzer: Fuzzer
    rng: random.Random
    seen: Counter[str] = field(default_factory=Counter)
    """What they did, and what came of it."""
    accepted: set[str] = field(default_factory=set)
    """Ids of responses that began and were stored."""
    deleted: set[str] = field(default_factory=set)

    def kinds(self) -> dict[Callable[[], Awaitable[str]], int]:
        """What a client may do, and how often."""
        return {
            self.reads: 20, self.waits: 10, self.goes_on: 8, self.leaves: 12, self.hangs_up: 5,
            self.dawdles: 4, self.calls: 1, self.comes_back: 5, self.looks: 5, self.cancels: 5,
            self.breaks_off: 4, self.talks: 4, self.fuzzes: 20, self.babbles: 4,
        }  # fmt: skip

    async def one(self) -> None:
        """One client's request, whatever it is. Raises Fault."""
        kinds = self.kinds()
        (kind,) = self.rng.choices(list(kinds), list(kinds.values()))
        self.seen[kind.__name__] += 1
        async with asyncio.timeout(120):
            if name := await kind():
                self.fuzzer.ids.append(name)  # nobody needs it any more, so anybody may delete it

    # --- those who wait for the end ---

    async def reads(self, **more: Any) -> str:
        """A stream, to its end; the response's id."""
        return self._whole(await self._post(self._body(stream=True, **more)))

    def _whole(self, answer: httpx2.Response) -> str:
        if answer.status_code == 429:
            return self.refused(answer)
        if answer.status_code != 200:
            raise Fault(f"{answer.status_code} {answer.text[:300]}")
        response = check(events_of(answer.text))
        return self._began(response)

    async def waits(self) -> str:
        """A body."""
        answer = await self._post(self._body())
        if answer.status_code == 200:
            return self._began(answer.json())
        return self.refused(answer)

    async def goes_on(self) -> str:
        """A second turn, and a third that branches off beside it."""
        if first := await self.reads():
            await asyncio.gather(*(self.reads(previous_response_id=first) for _ in range(2)))
        return first

    async def calls(self) -> str:
        """With a tool."""
        return await self.reads(input=TOOL, tools=[CODE])

    async def dawdles(self) -> str:
        """A stream with much in it, read in small pieces, slowly."""
        body = self._body(stream=True, top_logprobs=20)
        content = await self._raw(body, lambda: asyncio.sleep(self.rng.random() / 200), small=True)
        text = content.partition(b"\r\n\r\n")[2].decode()
        if "data: [DONE]" in text:
            ends = sum(f"event: {kind}\n" in text for kind in TERMINAL)
            if ends != 1:
                raise Fault(f"{ends} terminal events")
        return ""

    async def talks(self) -> str:
        """Over a WebSocket: two turns, and sometimes gone within the second."""
        address = f"{self.program.url}/responses".replace("http", "ws", 1)
        previous = ""
        async with connect(address, max_size=None) as socket:
            for _ in range(2):
                more = {"previous_response_id": previous} if previous else {}
                await socket.send(json.dumps({"type": "response.create", **self._body(**more)}))
                events = [json.loads(await socket.recv())]
                if events[0]["type"] == "error":
                    return previous  # too many
                self.accepted.add(events[0]["response"]["id"])
                if previous and self.rng.random() < 0.3:
                    return previous
                while events[-1]["type"] not in TERMINAL:
                    events.append(json.loads(await socket.recv()))
                previous = self._began(check(events))
        return previous

    async def comes_back(self) -> str:
        """In the background, left, and looked for later: its stream is there, once and whole."""
        answer = await self._post(self._body(background=True, stream=False))
        if answer.status_code != 200:
            return self.refused(answer)
        path = f"{self.program.url}/responses/{self._began(answer.json())}"
        return self._whole(await self.http.get(path, params={"stream": "true"}))

    # --- those who do not ---

    async def leaves(self) -> str:
        """In the middle of a stream."""
        return await self._leave(self._body(stream=True), self.rng.randint(0, 6000))

    async def hangs_up(self) -> str:
        """While the answer is made."""
        return await self._leave(self._body(), 0)

    async def breaks_off(self) -> str:
        """In the middle of the request."""
        return await self._leave(self._body(), 0, share=self.rng.random())

    async def cancels(self) -> str:
        """A response of its own, by its id, with the stream open."""
        url = f"{self.program.url}/responses"
        async with self.http.stream("POST", url, json=self._body(stream=True)) as answer:
            if answer.status_code != 200:
                await answer.aread()
                return self.refused(answer)
            text = ""
            async for piece in answer.aiter_text():
                text += piece
                if begun := BEGUN.search(text):
                    break
            assert begun
            self.accepted.add(begun[1])
            cancelled = await self.http.post(f"{url}/{begun[1]}/cancel")
            if cancelled.json()["status"] not in ("cancelled", "completed", "incomplete"):
                raise Fault(f"after cancel: {cancelled.text[:300]}")
        return begun[1]

    async def _leave(self, body: dict[str, Any], after: int, share: float = 1.0) -> str:
        content = await self._raw(body, None, after=after, share=share)
        found = BEGUN.search(content.decode(errors="replace"))
        if found:
            self.accepted.add(found[1])
        return found[1] if found else ""

    # --- those who send anything ---

    async def fuzzes(self) -> str:
        made = self.fuzzer.request()
        headers = {"content-type": "application/json"}
        answer = await self.http.request(
            made.method, self.program.root + made.path, content=made.body, headers=headers
        )
        if answer.status_code == 200:
            kind = answer.headers["content-type"].partition(";")[0]
            if kind == "text/event-stream" and made.path == "/v1/responses":
                self.seen["fuzzed streams"] += 1
                check(events_of(answer.text))
            elif kind == "application/json" and made.method == "DELETE":
                self.deleted.add(answer.json()["id"])
            elif kind == "application/json" and answer.json().get("object") == "response":
                self.seen["fuzzed responses"] += 1
        else:
            self.refused(answer, made)
        return ""

    async def babbles(self) -> str:
        """What is no HTTP at all, or almost."""
        rng = self.rng
        sent = rng.choice([
            rng.randbytes(200), b"POST /v1/responses HTTP/1.1\r\n", b"\r\n" * 50,
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
            POST + b"content-length: -1\r\n\r\n{}",
            POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
            b"GET /v1/responses/%00%ff HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
            b"GET /health?\xff\xfe HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
        ])  # fmt: skip
        reader, writer = await asyncio.open_connection(*self.program.host)
        with suppress(ConnectionError):
            writer.write(sent)
            writer.write_eof()
            answer = await reader.read()
            if answer[9:12] >= b"500":
                raise Fault(f"{sent[:80]!r}: {answer[:300]!r}")
        writer.close()
        return ""

    async def looks(self) -> str:
        """What was said before; deletes some of it."""
        found = self.rng.choice(self.fuzzer.ids[-50:] or ["none"])
        url = f"{self.program.url}/responses/{found}"
        if self.rng.random() < 0.2:
            self.deleted.add(found)
            answers = [await self.http.delete(url)]
        else:
            answers = [await self.http.get(url), await self.http.get(f"{url}/input_items")]
        for answer in answers:
            if answer.status_code not in (200, 404):
                raise Fault(f"{answer.request.method} {answer.url}: {answer.text[:300]}")
        return ""

    # --- the wire ---

    def _body(self, **more: Any) -> dict[str, Any]:
        rng = self.rng
        body = {"input": rng.choice(PROMPTS), "max_output_tokens": rng.randint(1, 60)}
        if rng.random() < 0.3:
            body |= {"temperature": 1.0, "seed": rng.randrange(1000)}
        return {**body, **more}

    async def _post(self, body: dict[str, Any]) -> httpx2.Response:
        return await self.http.post(f"{self.program.url}/responses", json=body)

    def _began(self, response: dict[str, Any]) -> str:
        found: str = response["id"]
        self.seen[response["status"]] += 1
        self.accepted.add(found)
        return found

    def refused(self, answer: httpx2.Response, made: Any = None) -> str:
        """A refusal is one of OpenAI's shape. Raises Fault."""
        self.seen[str(answer.status_code)] += 1
        told = answer.json() if answer.status_code in REFUSED else {}
        if not told.get("error", {}).get("message"):
            raise Fault(f"{made}: {answer.status_code} {answer.text[:300]}")
        return ""

    async def _raw(
        self,
        body: dict[str, Any],
        pause: Callable[[], Awaitable[None]] | None,
        *,
        after: int | None = None,
        share: float = 1.0,
        small: bool = False,
    ) -> bytes:
        """Send (a ``share`` of) a request; read to the end, or ``after`` so many bytes be gone."""
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
        sent = head.encode() + content
        got = bytearray()
        with suppress(ConnectionError):
            writer.write(sent[: int(len(sent) * share)])
            await writer.drain()
            while after is None or len(got) < after:
                piece = await reader.read(2048)
                if not piece:
                    break
                got += piece
                if pause is not None:
                    await pause()
        if self.rng.random() < 0.5:
            writer.transport.abort()
        writer.close()
        return bytes(got)
