"""The requests that an MCP server may make while one of its tools runs, and their results."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from tools.types import OnOutput, OnProgress


@dataclass(frozen=True, slots=True)
class ElicitationRequest:
    """A question to the person: a form to fill in, or a page to visit (``elicitation/create``)."""

    server: str
    message: str
    schema: dict[str, Any] | None = None
    """JSON Schema of the form's flat object; None where the question is a page to visit."""
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ElicitationResult:
    """The person's answer to an elicitation."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A server's request for a text from this program's model (``sampling/createMessage``)."""

    server: str
    messages: tuple[tuple[Literal["user", "assistant"], str], ...]
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    """Texts that end the answer."""


@dataclass(frozen=True, slots=True)
class SamplingResult:
    """The text that the model generated for a server."""

    text: str
    model: str
    stop_reason: Literal["endTurn", "maxTokens", "stopSequence"] = "endTurn"


OnElicitation = Callable[[ElicitationRequest], Awaitable[ElicitationResult]]
"""Asks the person who made the call."""
OnSampling = Callable[[SamplingRequest], Awaitable[SamplingResult | None]]
"""Generates the text; returns None to refuse."""


@dataclass(frozen=True, slots=True)
class CallHandlers:
    """The caller's callbacks for what a server sends during a call; None where it has none."""

    on_progress: OnProgress | None = None
    on_output: OnOutput | None = None
    on_elicitation: OnElicitation | None = None
    on_sampling: OnSampling | None = None
