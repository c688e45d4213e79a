"""The protocol of an engine: token ids in, token ids out. Making an engine is cheap; it loads on
demand. ``generate`` returns at once; the stream is read with ``async for`` and yields, in order:
``Prefill`` (at least one), ``Tokens`` batches, one ``Finished``; that alone if cancelled before."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy as np
    import numpy.typing as npt

from agent.errors import AgentError

MAX_TEMPERATURE = 1_000_000
"""Temperature at which all tokens are practically equally likely, and scores are still finite."""
_BOUNDS = {
    "temperature": (0, MAX_TEMPERATURE), "top_k": (0, math.inf), "top_p": (0, 1), "min_p": (0, 1),
    "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2), "repeat_penalty": (0.1, 10),
}  # fmt: skip


class EngineError(AgentError):
    """The engine failed or refuses; the message is one sentence: what happened and what to do."""


class ContextOverflowError(EngineError):
    """The prompt leaves no room in the context for one token."""

    def __init__(self, prompt_tokens: int, context_length: int) -> None:
        self.prompt_tokens, self.context_length = prompt_tokens, context_length
        super().__init__(
            f"The prompt has {prompt_tokens:,} tokens and the context holds {context_length:,}:"
            " shorten it or ask for a longer context."
        )


class OutOfMemoryError(EngineError):
    """There is too little memory for the model or its context."""


class EngineBusyError(EngineError):
    """Too many requests wait; the message says so and that the caller can try again."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings. Temperature 0 is greedy; top_k 0, top_p 1, min_p 0 are off. Penalties and
    biases apply first, then temperature, top_k, top_p (of what top_k leaves) and min_p."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    """Subtracted from the logit of every token that this generation has already produced
    (https://platform.openai.com/docs/api-reference/completions/create)."""
    frequency_penalty: float = 0.0
    """Subtracted once for each time that the token was produced (OpenAI's, as above)."""
    repeat_penalty: float = 1.0
    """The logits of the last 64 tokens are divided by it if positive, else multiplied
    (llama.cpp's, https://arxiv.org/abs/1909.05858)."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, value that is added to its logit), -100 … 100."""

    def __post_init__(self) -> None:
        """Raises ValueError for a value that is out of range or of another type."""
        for name, (low, high) in _BOUNDS.items():
            kinds = (int,) if name == "top_k" else (int, float)
            value = getattr(self, name)
            if type(value) not in kinds or not low <= value <= high:
                kind = "a whole number" if name == "top_k" else "a number"
                bounds = f"of at least {low}" if high == math.inf else f"from {low} to {high:,}"
                raise ValueError(f"{name} must be {kind} {bounds}, not {value!r}")
        if self.seed is not None and type(self.seed) is not int:
            raise ValueError(f"seed must be a whole number, not {self.seed!r}")


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """When a repetition is a loop."""

    max_period: int = 200
    """Tokens of the longest period that is recognised."""
    min_periods: int = 6
    min_tokens: int = 256
    """Tokens that all periods have at least."""
    min_code_tokens: int = 1024
    """The same in code and tables, and in an answer with a JSON Schema."""
    max_string_tokens: int = 8192
    """Tokens of a string of such an answer: it is closed then."""
    max_json_tokens: int = 32_768
    """Tokens of such an answer after which all that is open in it is closed."""


@dataclass(frozen=True, slots=True)
class Logprob:
    """A sampled token's natural-log probability in the model's own distribution (before any
    sampling setting), and the likeliest alternatives as (id, logprob), best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int | None = None
    """1: no other token was likelier; None: not known."""
    probability: float | None = None
    """0…1, by the `Sampling` without the grammar; 0: that cut it off. None: not known."""
    top_probabilities: tuple[float, ...] | None = None
    """The same of each alternative."""


class Constraint(Protocol):
    """Decides which tokens a generation may produce. Called in the engine's thread, token by token."""

    @property
    def pending(self) -> Future[Any] | None:
        """The compilation that the next `accept` or `allowed` would block on; None: neither blocks."""

    def accept(self, token: int) -> bool:
        """Take the token as the next one and return True; or change nothing and return False.
        Called for every sampled token, so it must be cheap."""

    def allowed(self) -> npt.NDArray[np.intp]:
        """Return the ids that may come next, (n,) intp, ascending. Slow: for rejects and display."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """``done`` of ``total`` prompt tokens are in the KV cache; ``cached`` were there before."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A server is waited for before the first token, or can answer again: a sentence for the user."""

    message: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """Newly sampled ids, one or more; a stop id that ended the generation is the last one."""

    ids: list[int]
    logprobs: list[Logprob | None] | None = None
    """One per id, if the request asked for them; None for an id of which a server reports none."""


FinishReason = Literal["stop", "length", "context", "cancelled"]
"""A stop id was sampled · max_tokens was reached · the context is full · it was cancelled."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The generation's end, with its token counts and durations."""

    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    drafted_tokens: int = 0
    """Tokens that were drafted, so that one step verified several."""
    accepted_tokens: int = 0
    """Number of drafted tokens in the output."""


@dataclass(frozen=True, slots=True)
class Request:
    """One generation, with its full prompt: the engine finds by itself what is already in its cache."""

    prompt: Sequence[int]
    max_tokens: int | None = None
    stop_ids: frozenset[int] = frozenset()
    sampling: Sampling = field(default_factory=Sampling)
    logprobs: int | None = None
    """Report each token's log probability, with this many alternatives (0…20); None: none."""
    probabilities: bool = False
    """Report with them ranks and probabilities too (`Logprob`), where the engine knows them."""
    continued_tokens: int = 0
    """Number of tokens at the end of the prompt that this generation has written: for penalties."""
    constraint: Constraint | None = None
    """An instance for this generation alone, as it has state."""
    constraint_spec: Callable[[], Mapping[str, Any] | None] | None = None
    """Returns, as JSON, what another process makes the constraint of."""
    report_gaps: Callable[[Mapping[str, str]], None] | None = None
    """Called with what that process could not enforce of it: reasons, by the tool of the arguments."""
    continues_turn: bool = False
    """The request continues a turn that was admitted before: it is never refused as too many."""
    background: bool = False
    """Prefetching: the request gives way to every other one and does not count in the queue."""
    auxiliary: bool = False
    """A background request that goes back in a cached conversation and leaves its sequence as it is."""
    head_tokens: int = 0
    """Length in tokens of the prompt header, which other conversations share (tools, instructions)."""
    affinity_tokens: int = 0
    """Length in tokens of the prefix that all prompts of this conversation share: its hash selects one
    of several servers. 0: it belongs to no conversation."""
    private: bool = False
    """Whether only the ``head_tokens`` may be written to the prefix cache on disk."""
    streamed: bool = True
    """Someone reads the tokens as they come; else several come together, which costs less."""

    def require_room(self, context_length: int) -> None:
        """Raise EngineError for an empty prompt, or one that leaves no room in the context."""
        if not self.prompt:
            raise EngineError("The prompt is empty.")
        if len(self.prompt) >= context_length:
            raise ContextOverflowError(len(self.prompt), context_length)


class Generation(Protocol):
    """A running generation, to be read once; a reader that stops early cancels it."""

    def __aiter__(self) -> AsyncIterator[Prefill | Waiting | Tokens | Finished]:
        """Yield Prefill, Waiting (only if a server runs it), Tokens, Finished. Raises EngineError."""

    def cancel(self) -> None:
        """End it at the next token or prefill chunk; it then yields ``Finished("cancelled")``. Safe
        from any thread, at any time, more than once."""


class Engine(Protocol):
    """One model, or a script in place of it."""

    name: str
    """``llama.cpp``, ``llama-server``, ``vllm`` or ``script``."""

    @property
    def context_length(self) -> int:
        """Tokens that prompt and output may have together; exact once loaded."""

    @property
    def unfinished(self) -> int:
        """Number of generations that run or wait, without background ones."""

    async def load(self, progress: Callable[[float], None] | None = None) -> None:
        """Load the model; ``progress`` gets 0…1. Does nothing when loaded. Raises EngineError."""

    def generate(self, request: Request) -> Generation:
        """Start generating; needs a running event loop and a loaded engine. ``max_tokens=0`` only
        prefills. Raises ContextOverflowError, EngineBusyError when too many wait, or EngineError when
        the model is not loaded or the prompt is empty or has unknown ids."""

    async def close(self) -> None:
        """Cancel running generations and free everything."""
