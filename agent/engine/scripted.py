"""The scripted engine: generations from a file, for tests and replays. A JSON line for each:
``{"markup": "…"}`` (special tokens spelled) or ``{"tokens": […]}``, with an optional ``"delay_ms"``
before each token. ``"hold": {"after": 8, "until": "/tmp/go"}`` stops after 8 tokens until that file
exists; without ``"until"``, until it is cancelled. After the last line comes the first."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from agent.engine.forced_tokens import ForcedTokens
from agent.engine.protocol import (
    EngineError,
    Finished,
    FinishReason,
    Logprob,
    Prefill,
    Request,
    Tokens,
)
from agent.util.prefix import common_prefix_length

DEFAULT_CONTEXT_TOKENS = 131_072

HOLD_POLL_SECONDS = 0.005

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class Hold:
    """Where a generation stops until it is released."""

    after: int
    until: Path | None = None
    """The file whose existence releases it; None: only a cancel does."""

    async def wait(self, cancelled: asyncio.Event) -> None:
        while not cancelled.is_set() and not (self.until and self.until.exists()):  # noqa: ASYNC110
            await asyncio.sleep(HOLD_POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """One line of the script: a generation."""

    tokens: list[int]
    delay_seconds: float
    hold: Hold | None = None


EMPTY_LINE = ScriptLine([], 0.0)


class ScriptEngine:
    """An Engine whose tokens come from a file."""

    name = "script"

    def __init__(self, path: Path, encode: Encode, *, context: int | None = None) -> None:
        """`encode` turns markup into ids, spelled special tokens included; `context` in tokens."""
        self.context_length = context or DEFAULT_CONTEXT_TOKENS
        self.sequence_ids: list[int] = []
        """The last prompt and its output: what a real engine's KV cache would have."""
        self.answered_ids: list[int] = []
        """The last prompt that was not only prefilled, and its output."""
        self.unfinished = 0
        self._path, self._encode = path, encode
        self._lines: Iterator[ScriptLine] | None = None
        self.rest = EMPTY_LINE
        """The rest of the line that came last, for a request that continues it."""

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Read the file. Raises EngineError, which names a wrong line and what is wrong with it."""
        if self._lines is None:
            self._lines = cycle(await asyncio.to_thread(read_script, self._path, self._encode))
            if progress:
                progress(1.0)

    def generate(self, request: Request) -> ScriptGeneration:
        if self._lines is None:
            raise EngineError("The script is not loaded yet.")
        request.require_room(self.context_length)
        # A request that only prefills uses up no line.
        if request.auxiliary:
            forced = request.constraint
            ids = forced.upcoming(1 << 30) if isinstance(forced, ForcedTokens) else []
            line = ScriptLine(ids, 0)
        elif request.max_tokens == 0:
            line = EMPTY_LINE
        else:
            continues = request.continued_tokens and self.sequence_ids == list(request.prompt)
            line = self.rest if continues else next(self._lines)
        return ScriptGeneration(self, request, line)

    async def close(self) -> None:
        """Unload the script; a later load starts from the first line."""
        self._lines = None


class ScriptGeneration:
    """Streams one line."""

    def __init__(self, engine: ScriptEngine, request: Request, line: ScriptLine) -> None:
        self._engine, self._request, self._line = engine, request, line
        self._loop = asyncio.get_running_loop()
        self._cancelled = asyncio.Event()

    def cancel(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancelled.set)

    async def __aiter__(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        counts = not self._request.background
        self._engine.unfinished += counts
        try:
            async for item in self._stream_line():
                yield item
        finally:
            self._engine.unfinished -= counts

    async def _stream_line(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        sequence = list(self._request.prompt)
        total = len(sequence)
        cached = min(common_prefix_length(self._engine.sequence_ids, sequence), total - 1)
        if not self._request.auxiliary:
            self._engine.sequence_ids = sequence
            if self._line is not EMPTY_LINE:
                self._engine.answered_ids = sequence
        yield Prefill(cached, total, cached)
        yield Prefill(total, total, cached)
        due = start = time.perf_counter()
        reason: FinishReason = "stop"
        hold, number = self._line.hold, 0
        for number, token in enumerate(self._line.tokens):
            if number == self._request.max_tokens or len(sequence) >= self._engine.context_length:
                reason = "length" if number == self._request.max_tokens else "context"
                break
            if hold and number == hold.after:
                await hold.wait(self._cancelled)
            due += self._line.delay_seconds  # absolute times: a sleep takes longer than it should
            if await self._cancelled_within(due - time.perf_counter()):
                reason = "cancelled"
                break
            sequence.append(token)
            yield Tokens([token], self._logprobs(token))
            if token in self._request.stop_ids:
                break
        if not self._request.auxiliary:
            hold = hold and replace(hold, after=hold.after - number)
            self._engine.rest = replace(self._line, tokens=self._line.tokens[number:], hold=hold)
        seconds = time.perf_counter() - start
        yield Finished(reason, total, cached, len(sequence) - total, 0.0, seconds)

    def _logprobs(self, token: int) -> list[Logprob | None] | None:
        if self._request.logprobs is None:
            return None
        known = (1, 1.0, (1.0,)) if self._request.probabilities else ()
        return [Logprob(token, 0.0, ((token, 0.0),), *known)]

    async def _cancelled_within(self, seconds: float) -> bool:
        """Wait, yielding to the loop even for 0 seconds; return whether the wait was cancelled."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return self._cancelled.is_set()
        try:
            async with asyncio.timeout(seconds):
                return await self._cancelled.wait()
        except TimeoutError:
            return False


def read_script(path: Path, encode: Encode) -> list[ScriptLine]:
    """Read the lines of a script; blank ones are skipped. Raises EngineError."""
    try:
        texts = path.read_text("utf-8").split("\n")  # a string may hold other line separators
    except OSError as error:
        raise EngineError(f"The script {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise EngineError(f"The script {path} is not UTF-8 text.") from None
    lines = []
    for number, text in enumerate(texts, 1):
        if text.strip():
            try:
                lines.append(_parse_line(text, encode))
            except ValueError as error:
                raise EngineError(f"Line {number} of the script {path}: {error}.") from None
    if not lines:
        raise EngineError(f"The script {path} has no lines.")
    return lines


def _parse_line(text: str, encode: Encode) -> ScriptLine:
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
    match rest.pop("hold", None):
        case None:
            hold = None
        case {"after": int(after), "until": str(until), **more} if after >= 0 and not more:
            hold = Hold(after, Path(until))
        case {"after": int(after), **more} if after >= 0 and not more:
            hold = Hold(after)
        case _:
            raise ValueError('"hold" is not {"after": tokens, "until": "file"}')
    if rest:
        raise ValueError(f"{next(iter(rest))!r} is not a field of a script")
    return ScriptLine(tokens, delay / 1000, hold)
