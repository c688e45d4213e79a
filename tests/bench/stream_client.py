"""An HTTP client for all servers: it timestamps the lines of a stream and parses them afterwards."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TimedStream:
    """The events of one streamed response, each with the time of its line (perf_counter, seconds)."""

    requested_at: float
    events: list[tuple[float, dict[str, Any]]]

    @property
    def text_times(self) -> list[float]:
        """Times of the events that have text, a token or a few each."""
        return [at for at, event in self.events if _has_text(event)]

    @property
    def seconds_to_first_text(self) -> float:
        """Seconds from the request to the first text."""
        return self.text_times[0] - self.requested_at

    @property
    def seconds_to_last_text(self) -> float:
        """Seconds from the request to the last text."""
        return self.text_times[-1] - self.requested_at

    @property
    def longest_gap(self) -> float:
        """The longest time between two texts, in seconds."""
        return max(b - a for a, b in zip(self.text_times, self.text_times[1:], strict=False))


def _has_text(event: dict[str, Any]) -> bool:
    """Whether an event of /completion, of chat completions or of the Responses API has text."""
    if choices := event.get("choices"):
        delta = choices[0]["delta"]
        return bool(delta.get("content") or delta.get("reasoning_content"))
    return bool(event.get("content") or event.get("delta"))


def parse_stream(requested_at: float, lines: list[tuple[float, bytes]]) -> TimedStream:
    """Parse the lines that are JSON, with or without the ``data:`` of a server-sent event.

    Raises RuntimeError where the last event is an error.
    """
    events = []
    for at, line in lines:
        if (data := line.removeprefix(b"data: ")).startswith(b"{"):
            events.append((at, json.loads(data)))
    if not events or "error" in events[-1][1]:
        raise RuntimeError(f"the server answered {lines[-1][1]!r}")
    return TimedStream(requested_at, events)


async def post_stream(port: int, path: str, body: dict[str, Any]) -> TimedStream:
    """POST to a server on this machine and read its stream to the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    data = json.dumps(body | {"stream": True}).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    lines: list[tuple[float, bytes]] = []
    clock = time.perf_counter
    requested_at = clock()
    writer.write(head.encode() + data)
    while line := await reader.readline():
        if line.startswith((b"data: ", b"{")):
            lines.append((clock(), line))
    writer.close()
    return parse_stream(requested_at, lines)
