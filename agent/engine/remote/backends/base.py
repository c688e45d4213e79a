"""The protocol of a server that runs a model: what is requested of it, and how its answers are read. It
makes and reads JSON; `RemoteClient` and `RemoteGeneration` make the requests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.engine.protocol import FinishReason, Logprob, Prefill, Request

Json = dict[str, Any]


@dataclass(slots=True)
class CompletionChunk:
    """The content of one message of a server's stream."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    """One per id, if they were requested."""
    text: str = ""
    """The text of the ids, and of earlier ids that the server left out (`count` says so)."""
    count: int | None = None
    """Tokens generated so far, if the server counts them."""
    prefill: Prefill | None = None
    cached: int | None = None
    """Prompt tokens that were in the server's KV cache."""
    reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """A server's report about the model that it runs."""

    model: str
    context: int | None
    """Tokens that prompt and output may have together."""


class RemoteBackend(Protocol):
    """One kind of server."""

    name: str
    completion_path: str
    prefill_without_sampling: bool
    usage_last: bool
    """Whether it reports the cached prompt tokens after the last token."""

    def metadata_paths(self, model: str | None) -> Sequence[str]:
        """Return the paths whose answers `parse_metadata` reads. ``model``: as models.toml names it."""

    def parse_metadata(self, answers: Sequence[Json], model: str | None) -> ServerMetadata:
        """Read the answers of `metadata_paths`. Raises EngineError if the model is not served, or
        KeyError, IndexError, TypeError or StopIteration if they are not of this kind of server."""

    def tokenize_body(self, text: str, model: str) -> Json:
        """Make the body for /tokenize, which answers with ``tokens``; special tokens are parsed."""

    def completion_body(self, request: Request, max_tokens: int, allowed: list[int] | None) -> Json:
        """Make the body of a completion, without its ``model`` and ``prompt``. ``allowed``: the only
        ids that may come next; None: any."""

    def parse_chunk(self, message: Json) -> CompletionChunk:
        """Read one message of the stream. Raises EngineError for an end that is a failure."""


def error_message(text: str) -> str:
    """Return the message in the body of an error, shortened to one line of 300 characters."""
    try:
        body = json.loads(text)
        body = body.get("error", body)
        text = body.get("message", text) if isinstance(body, dict) else str(body)
    except (ValueError, AttributeError):
        pass
    return " ".join(text.split())[:300] or "nothing"
