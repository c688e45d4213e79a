"""One client for every server: streams are only timed while they come, and read afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """The events of one streamed answer, each with the time (s) at which its line came."""

    asked: float
    events: list[tuple[float, dict[str, Any]]]

    @property
    def texts(self) -> list[float]:
        """When text came: a token or a few at a time."""
        return [at for at, event in self.events if _says(event)]

    @property
    def first(self) -> float:
        """Seconds until the first text."""
        return self.texts[0] - self.asked

    @property
    def last(self) -> float:
        """Seconds until the last text."""
        return self.texts[-1] - self.asked

    @property
    def gap(self) -> float:
        """The longest wait within the text, in seconds."""
        return max(b - a for a, b in zip(self.texts, self.texts[1:], strict=False))


def _says(event: dict[str, Any]) -> bool:
    """Of llama-server's completion, a chat chunk, or an event of the Responses API."""
    if choices := event.get("choices"):
        delta = choices[0]["delta"]
        return bool(delta.get("content") or delta.get("reasoning_content"))
    return bool(event.get("content") or event.get("delta"))


def read(asked: float, lines: list[tuple[float, bytes]]) -> Answer:
    """Lines of JSON, with or without the prefix of a server-sent event; others are left out."""
    events = []
    for at, line in lines:
        if (data := line.removeprefix(b"data: ")).startswith(b"{"):
            events.append((at, json.loads(data)))
    if not events or "error" in events[-1][1]:
        raise RuntimeError(f"the server answered {lines[-1][1]!r}")
    return Answer(asked, events)


async def stream(port: int, path: str, body: dict[str, Any]) -> Answer:
    """POST to a server on this machine and take what it streams."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    data = json.dumps(body | {"stream": True}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    lines: list[tuple[float, bytes]] = []
    clock = time.perf_counter
    asked = clock()
    writer.write(head.encode() + data)
    while line := await reader.readline():
        if line.startswith((b"data: ", b"{")):
            lines.append((clock(), line))
    writer.close()
    return read(asked, lines)
