"""One choice of ``/v1/completions``: the raw model's text after a prompt, without a turn."""

import codecs
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from pydantic import Field

from agent.engine.forced_tokens import SPEC_FIELD, ForcedTokens
from agent.engine.protocol import EngineError, Finished, Logprob, Request, Sampling, Tokens
from agent.formats.protocol import Format
from agent.observability.metrics import Metrics
from agent.runtime.runtime import Runtime
from agent.server.chat.requests import Seed, StreamOptions
from agent.server.http.clients import Client, current_client
from agent.server.input.schemas import SamplingFields
from agent.turn.stop_sequences import StopSequences, TextPiece

DEFAULT_MAX_TOKENS = 16


class CompletionRequest(SamplingFields):
    """The body of ``POST /v1/completions``; a field that is None was not sent."""

    model: str | None = None
    prompt: Any = Field(
        default=None,
        json_schema_extra={
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "array", "items": {"type": "integer"}},
                {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            ]
        },
    )
    max_tokens: int | None = Field(default=None, ge=-1)
    seed: Seed | None = None
    n: int | None = Field(default=None, ge=1, le=16)
    best_of: int | None = Field(default=None, ge=1, le=16)
    echo: bool | None = None
    logprobs: int | None = Field(default=None, ge=0, le=20)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    suffix: str | None = None
    user: str | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None


@dataclass(slots=True)
class CompletionChoice:
    """Generates one choice; read `pieces` to its end."""

    runtime: Runtime
    form: Format
    prompt: Sequence[int]
    metrics: Metrics
    sampling: Sampling
    stop: tuple[str, ...]
    logprobs: int | None
    """Number of alternatives; None: no log probabilities."""
    body: CompletionRequest
    client: Client = field(default_factory=current_client)
    prompt_tokens: int = 0
    """Tokens that were read, counted once for scoring and once for generating."""
    cached_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str = "length"
    """Why it ended: ``stop`` or ``length``."""
    mean_logprob: float = 0.0
    """Mean over the generated tokens, if requested."""

    async def pieces(self) -> AsyncGenerator[TextPiece]:
        """Yield the text as it comes, with log probabilities if asked for. Raises EngineError."""
        status = "cancelled"
        parts = [self._prompt_pieces] if self.body.echo else []
        if self.body.max_tokens != 0:
            parts.append(self._generated_pieces)
        try:
            for part in parts:
                async with aclosing(part()) as pieces:
                    async for piece in pieces:
                        yield piece
            status = "completed"
        except EngineError:
            status = "failed"
            raise
        finally:
            read, cached = self.prompt_tokens, self.cached_tokens
            self.metrics.record_completion(status, read, cached, self.output_tokens)

    async def read(self) -> list[TextPiece]:
        return [piece async for piece in self.pieces()]

    async def _prompt_pieces(self) -> AsyncGenerator[TextPiece]:
        """The prompt itself; with log probabilities the model is led through it."""
        text = _TextDecoder(self.form, special_tokens=True)
        if self.logprobs is None:
            yield TextPiece("".join(map(text.decode, self.prompt)) + text.end())
            return
        first, *rest = self.prompt
        entry = {"token": text.spell(first), "logprob": None, "top": None}
        yield TextPiece(text.decode(first), [entry])
        if not rest:
            return
        request = Request(
            [first],
            len(rest),
            sampling=Sampling(temperature=0),
            logprobs=max(self.logprobs, 1),
            constraint=ForcedTokens(rest),
            constraint_spec=lambda: {SPEC_FIELD: rest},
            private=True,
        )
        async for event in self.runtime.generate(request):
            if isinstance(event, Tokens):
                self.prompt_tokens += len(event.ids)
                for token, logprob in _scored(event):
                    yield TextPiece(text.decode(token), text.entries(logprob))
        if end := text.end():
            yield TextPiece(end)

    async def _generated_pieces(self) -> AsyncGenerator[TextPiece]:
        body, sent = self.body, self.body.max_tokens
        stop_ids = frozenset[int]() if body.ignore_eos else self.form.stop_ids
        text = _TextDecoder(self.form, special_tokens=body.skip_special_tokens is False)
        stop = StopSequences(self.stop)
        limit = {None: DEFAULT_MAX_TOKENS, -1: None}.get(sent, sent)
        request = Request(
            self.prompt, limit, stop_ids, self.sampling, logprobs=self.logprobs, private=True
        )
        generation = self.runtime.generate(request)
        total, scored = 0.0, 0
        async for event in generation:
            if isinstance(event, Finished):
                self.prompt_tokens += event.prompt_tokens
                if self.client.prompts is not None:
                    event = self.client.prompts.limit(event, self.prompt, ())
                self.cached_tokens = event.cached_tokens
                if event.reason == "stop" or stop.cut_off is not None:
                    self.finish_reason = "stop"
            elif isinstance(event, Tokens) and stop.cut_off is None:
                for token, logprob in _scored(event):
                    self.output_tokens += 1
                    if logprob is not None:
                        total, scored = total + logprob.logprob, scored + 1
                        self.mean_logprob = total / scored
                    written = "" if token in stop_ids else text.decode(token)
                    for piece in stop.feed(written, text.entries(logprob)):
                        yield piece
                    if stop.cut_off is not None:
                        generation.cancel()
                        break
        if stop.cut_off is None:
            for piece in (*stop.flush(), TextPiece(text.end())):
                yield piece


def _scored(tokens: Tokens) -> Iterable[tuple[int, Logprob | None]]:
    return zip(tokens.ids, tokens.logprobs or repeat(None), strict=False)


class _TextDecoder:
    """Decodes ids to text, of which a character may take several."""

    def __init__(self, form: Format, *, special_tokens: bool) -> None:
        self._form, self._special_tokens = form, special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def decode(self, token: int) -> str:
        """The text that comes with an id; special tokens have none, unless they are wanted."""
        if self._form.is_markup(token) and not self._special_tokens:
            return ""
        return self._decoder.decode(self._form.token_bytes(token))

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)

    def spell(self, token: int) -> str:
        return self._form.token_bytes(token).decode("utf-8", "replace")

    def entries(self, logprob: Logprob | None) -> list[dict[str, Any]]:
        """A token's log probability, and the best tokens', by their texts; none if it is not known."""
        if logprob is None:
            return []
        top: dict[str, float] = {}
        for token, value in logprob.top:
            top.setdefault(self.spell(token), value)
        top.setdefault(self.spell(logprob.token), logprob.logprob)
        return [{"token": self.spell(logprob.token), "logprob": logprob.logprob, "top": top}]


def logprobs_object(pieces: Sequence[TextPiece], offset: int) -> dict[str, Any]:
    """The ``logprobs`` of pieces that begin at character ``offset`` of the choice's text."""
    entries: list[tuple[dict[str, Any], int]] = []
    for piece in pieces:
        entries += [(entry, offset) for entry in piece.logprobs]
        offset += len(piece.text)
    return {
        "tokens": [entry["token"] for entry, _ in entries],
        "token_logprobs": [entry["logprob"] for entry, _ in entries],
        "top_logprobs": [entry["top"] for entry, _ in entries],
        "text_offset": [at for _, at in entries],
    }
