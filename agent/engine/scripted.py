"""The scripted engine: says what a file tells it to, for tests and replays.

The file holds JSON lines, one per generation: ``{"markup": "…"}`` (as the model's family writes it,
special tokens spelled) or ``{"tokens": […]}``, with an optional ``"delay_ms"`` before each token.
After the last line it starts again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from agent.engine.llama.prefix_cache import common
from agent.engine.protocol import (
    ContextOverflow,
    EngineError,
    Finished,
    Prefill,
    Reason,
    Request,
    Tokens,
)

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

CONTEXT = 131_072

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Line:
    """One generation to come."""

    tokens: list[int]
    delay: float
    """Seconds before each token."""


SILENCE = Line([], 0.0)


class ScriptEngine:
    """An Engine that samples nothing."""

    name = "script"

    def __init__(
        self, path: Path, encoding: HarmonyEncoding | Encode, *, context: int | None = None
    ) -> None:
        """`encoding` turns markup into ids, specials where they are spelled; `context` in tokens."""
        self.context_length = context or CONTEXT
        self.sequence: list[int] = []
        """The ids of the last prompt and of what followed: what a real engine would hold."""
        self.spoken: list[int] = []
        """The same of the last prompt that was answered, not only laid ahead."""
        self.unfinished = 0
        self._path = path
        self._encode = encoding if callable(encoding) else _harmony(encoding)
        self._lines: Iterator[Line] | None = None

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Read the file. Raises EngineError that names the line and what is wrong with it."""
        if self._lines is None:
            self._lines = cycle(await asyncio.to_thread(read, self._path, self._encode))
            if progress:
                progress(1.0)

    def generate(self, request: Request) -> ScriptGeneration:
        """The next line's generation. Raises EngineError like any engine."""
        if self._lines is None:
            raise EngineError("The script is not loaded yet.")
        if not request.prompt:
            raise EngineError("The prompt is empty.")
        if len(request.prompt) >= self.context_length:
            raise ContextOverflow(len(request.prompt), self.context_length)
        # Who only lays a prompt ahead asks for nothing to be said.
        line = SILENCE if request.max_tokens == 0 else next(self._lines)
        return ScriptGeneration(self, request, line)

    async def close(self) -> None:
        """Start from the first line when loaded again."""
        self._lines = None


class ScriptGeneration:
    """One line, being said."""

    def __init__(self, engine: ScriptEngine, request: Request, line: Line) -> None:
        self._engine = engine
        self._request = request
        self._line = line
        self._loop = asyncio.get_running_loop()
        self._cancelled = asyncio.Event()

    def cancel(self) -> None:
        """End it, also during a delay; safe from any thread, at any time, more than once."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancelled.set)

    async def __aiter__(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        counts = not self._request.idle
        self._engine.unfinished += counts
        try:
            async for item in self._say():
                yield item
        finally:
            self._engine.unfinished -= counts

    async def _say(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        prompt = list(self._request.prompt)
        total = len(prompt)
        cached = min(common(self._engine.sequence, prompt), total - 1)
        self._engine.sequence = sequence = prompt
        if self._line is not SILENCE:
            self._engine.spoken = sequence
        yield Prefill(cached, total, cached)
        yield Prefill(total, total, cached)
        due = start = time.perf_counter()
        reason: Reason = "stop"
        for token in self._line.tokens:
            if ended := self._full(total, len(sequence)):
                reason = ended
                break
            due += self._line.delay  # by the clock: waiting takes longer than was asked for
            if await self._cancelled_within(due - time.perf_counter()):
                reason = "cancelled"
                break
            sequence.append(token)
            yield Tokens([token])
            if token in self._request.stop:
                break
        seconds = time.perf_counter() - start
        yield Finished(reason, total, cached, len(sequence) - total, 0.0, seconds)

    def _full(self, prompt: int, length: int) -> Reason | None:
        """Why no token may follow, if none may."""
        if self._request.max_tokens is not None and length - prompt >= self._request.max_tokens:
            return "length"
        return "context" if length >= self._engine.context_length else None

    async def _cancelled_within(self, seconds: float) -> bool:
        """Wait, and let others run even if there is nothing to wait for."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return self._cancelled.is_set()
        try:
            async with asyncio.timeout(seconds):
                return await self._cancelled.wait()
        except TimeoutError:
            return False


def _harmony(encoding: HarmonyEncoding) -> Encode:
    def encode(markup: str) -> list[int]:
        ids: list[int] = encoding.encode(markup, allowed_special="all")
        return ids

    return encode


def read(path: Path, encode: Encode) -> list[Line]:
    """The lines of a script; blank ones are skipped. Raises EngineError."""
    try:
        texts = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise EngineError(f"The script {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise EngineError(f"The script {path} is not UTF-8 text.") from None
    lines = []
    for number, text in enumerate(texts, 1):
        if text.strip():
            try:
                lines.append(_line(text, encode))
            except ValueError as error:
                raise EngineError(f"Line {number} of the script {path}: {error}.") from None
    if not lines:
        raise EngineError(f"The script {path} has no lines.")
    return lines


def _line(text: str, encode: Encode) -> Line:
    """One generation. Raises ValueError."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at column {error.colno})") from None
    match fields:
        case {"markup": str(markup), **rest}:
            tokens = encode(markup)
        case {"tokens": list(tokens), **rest} if all(type(t) is int and t >= 0 for t in tokens):
            pass
        case _:
            raise ValueError('neither {"markup": "…"} nor {"tokens": [ids]}')
    match rest.pop("delay_ms", 0):
        case int() | float() as delay if delay >= 0:
            pass
        case _:
            raise ValueError('"delay_ms" is not a number of milliseconds')
    if rest:
        raise ValueError(f"{next(iter(rest))!r} is not a field of a script")
    return Line(tokens, delay / 1000)
