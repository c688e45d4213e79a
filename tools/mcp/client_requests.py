"""What a server may ask back while one of its tools runs, and what it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from tools.types import OnOutput, OnProgress


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A question to the person: a form to fill in, or a page to visit."""

    server: str
    message: str
    schema: dict[str, Any] | None = None
    """JSON Schema of the form's flat object; None where it is a page."""
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Elicited:
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    """What was filled in."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """A server wants this process's model to write something."""

    server: str
    messages: tuple[tuple[Literal["user", "assistant"], str], ...]
    max_tokens: int
    system: str | None = None
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    text: str
    model: str
    cut: bool = False
    """It would have gone on."""


OnElicitation = Callable[[Elicitation], Awaitable[Elicited]]
"""Asks whoever is there."""
OnSampling = Callable[[Sampling], Awaitable[Sampled | None]]
"""None: refused."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who made a call: told of its progress, asked what the server asks. What is None is not."""

    on_progress: OnProgress | None = None
    on_output: OnOutput | None = None
    on_elicitation: OnElicitation | None = None
    on_sampling: OnSampling | None = None
