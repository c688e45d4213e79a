"""The engine's protocol: token ids in, token ids out.

An engine is made cheap and loads on demand. ``generate`` returns at once; the stream is read with
``async for`` and yields, in order: ``Prefill`` (at least one), ``Tokens`` batches, one ``Finished``.
One that is cancelled before its turn came yields only ``Finished``.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    import numpy.typing as npt


HOTTEST = 1_000_000
"""A temperature at which all tokens are as good as equally likely; scores still are numbers there."""
_BOUNDS = {
    "temperature": (0, HOTTEST), "top_k": (0, math.inf), "top_p": (0, 1), "min_p": (0, 1),
    "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2), "repeat_penalty": (0.1, 10),
}  # fmt: skip


class EngineError(Exception):
    """The engine cannot do it; the message is one sentence that says what happened and what to do."""


class ContextOverflow(EngineError):
    """The prompt leaves no room in the context for one token."""

    def __init__(self, prompt: int, context: int) -> None:
        super().__init__(
            f"The prompt has {prompt:,} tokens and the context holds {context:,}:"
            " shorten it or ask for a longer context."
        )


class OutOfMemory(EngineError):
    """There was too little memory for it."""


class Busy(EngineError):
    """As many requests wait as may; the message says so and that it can be tried again."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy; top_k 0, top_p 1, min_p 0 are off.

    Penalties and biases change the scores; then comes the temperature, top_k, top_p of what that
    left, and min_p.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    """Taken from the score of every token that this generation has already said (OpenAI's)."""
    frequency_penalty: float = 0.0
    """Taken from it as often as the token was said (OpenAI's)."""
    repeat_penalty: float = 1.0
    """Positive scores of the last 64 tokens' own are divided by it, negative ones multiplied."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what is added to its score), -100 … 100."""

    def __post_init__(self) -> None:
        """Raises ValueError for what a person wrote that is no such setting."""
        for name, (least, most) in _BOUNDS.items():
            kinds = (int,) if name == "top_k" else (int, float)
            value = getattr(self, name)
            if type(value) not in kinds or not least <= value <= most:
                kind = "a whole number" if name == "top_k" else "a number"
                bounds = f"of at least {least}" if most == math.inf else f"from {least} to {most:,}"
                raise ValueError(f"{name} is {kind} {bounds}, not {value!r}")
        if self.seed is not None and type(self.seed) is not int:
            raise ValueError(f"seed is a whole number, not {self.seed!r}")


@dataclass(frozen=True, slots=True)
class Logprob:
    """A sampled token's natural-log probability (of the model's own distribution, before sampling
    settings), and the likeliest alternatives as (id, logprob), best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class Constraint(Protocol):
    """What a generation may say. Asked in the engine's thread, one token after the other."""

    @property
    def pending(self) -> Future[Any] | None:
        """Before that is done, the answer to what comes next would be waited for."""
        ...

    def accept(self, token: int) -> bool:
        """The token comes next, if it may; else nothing has changed. Cheap: asked of every sampled
        token."""
        ...

    def allowed(self) -> npt.NDArray[np.intp]:
        """The ids that may come next. Asked after a reject only."""
        ...


@dataclass(frozen=True, slots=True)
class Prefill:
    """``done`` of ``total`` prompt tokens are in memory, ``cached`` of them from before."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """Before the first token: what is waited for, or that it has come, in a sentence for a person."""

    message: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """Newly sampled ids, one or more; a stop id that ended the generation is included, last."""

    ids: list[int]
    logprobs: list[Logprob] | None = None
    """One per id, where the request asked for them."""


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
    logprobs: int | None = None
    """Report each token's log probability with so many alternatives (0…20)."""
    constraint: Constraint | None = None
    """Made for this generation alone."""
    follows: bool = False
    """It goes on with what the engine let in before: it is not refused, however many wait."""
    idle: bool = False
    """Work done ahead: it gives way to every other request and takes no place in the queue."""


class Generation(Protocol):
    """A running generation, to be read once; a reader that goes away cancels it."""

    def __aiter__(self) -> AsyncIterator[Prefill | Waiting | Tokens | Finished]:
        """Prefill, Waiting (where a server runs it), Tokens, Finished. Raises EngineError when the
        engine fails on the way."""
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

    @property
    def unfinished(self) -> int:
        """Generations that run or wait to, but for work ahead."""
        ...

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
