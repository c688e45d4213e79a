"""The engine's protocol: token ids in, token ids out.

An engine is made cheap and loads on demand. ``generate`` returns at once; the stream is read with
``async for`` and yields, in order: ``Prefill`` (at least one), ``Tokens`` batches, one ``Finished``.
One that is cancelled before its turn came yields only ``Finished``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol


class EngineError(Exception):
    """The engine cannot do it; the message is one sentence that says what happened and what to do."""


class ContextOverflow(EngineError):
    """The prompt leaves no room in the context for one token."""

    def __init__(self, prompt: int, context: int) -> None:
        super().__init__(
            f"The prompt has {prompt:,} tokens and the context holds {context:,}:"
            " shorten it or ask for a longer context."
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy; top_k 0, top_p 1, min_p 0 are off.

    The temperature comes first, then top_k, top_p of what that left, and min_p.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Prefill:
    """``done`` of ``total`` prompt tokens are in memory, ``cached`` of them from before."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Newly sampled ids, one or more; a stop id that ended the generation is included, last."""

    ids: list[int]


Reason = Literal["stop", "length", "context", "cancelled"]
"""Stop id sampled · max_tokens reached · the context is full · cancelled."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The generation's end and its measures (seconds)."""

    reason: Reason
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """One generation: the whole prompt (the engine finds by itself what it has already seen)."""

    prompt: Sequence[int]
    max_tokens: int | None = None
    stop: frozenset[int] = frozenset()
    sampling: Sampling = field(default_factory=Sampling)


class Generation(Protocol):
    """A running generation, to be read once; a reader that goes away cancels it."""

    def __aiter__(self) -> AsyncIterator[Prefill | Tokens | Finished]:
        """Prefill, Tokens, Finished. Raises EngineError when the engine fails on the way."""
        ...

    def cancel(self) -> None:
        """Ask it to end between tokens or prefill chunks; it then yields ``Finished("cancelled")``.

        Safe from any thread, at any time, more than once.
        """
        ...


class Engine(Protocol):
    """One loaded model (or what stands in for it)."""

    name: str
    """``llama.cpp`` or ``script``."""
    context_length: int
    """Tokens that prompt and output together may have; exact once loaded."""

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Get ready; ``progress`` gets 0…1. Does nothing when loaded. Raises EngineError."""
        ...

    def generate(self, request: Request) -> Generation:
        """Start generating; needs a running event loop and a loaded engine.

        ``max_tokens=0`` only prefills. Raises ContextOverflow, or EngineError when not loaded or
        when the prompt is empty or has ids that are not in the vocabulary.
        """
        ...

    async def close(self) -> None:
        """Free everything; running generations are cancelled."""
        ...
