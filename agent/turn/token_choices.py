"""The alternatives of a token and their probabilities, computed again in the background, in one pass
from the nearest cached prefix, which stays as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agent.engine.forced_tokens import SPEC_FIELD, ForcedTokens
from agent.engine.protocol import (
    Constraint,
    Engine,
    EngineError,
    Finished,
    Logprob,
    Request,
    Sampling,
    Tokens,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from agent.runtime.runtime import Runtime

OTHER_CHOICES = 10
"""Tokens that `TokenChoices` has in addition to the chosen one."""
PIECE_TOKENS = 256
"""Tokens that `token_logprobs` asks of the engine at once: other requests come in between."""
Verdict = Literal["free", "forced", "forbidden"]
"""A grammar's verdict on a token: others were allowed too, it was the only one, it was not allowed."""
_NOT_REPORTED = "The server reports no probabilities here."
_NO_RESULT = {
    "context": "The model's memory has no room to go back to this token.",
    "cancelled": "The model was unloaded meanwhile, or had too much else to compute: try again.",
}


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """A token that could come next."""

    token: int
    logprob: float
    """Natural logarithm, in the model's own distribution, before any sampling setting."""
    probability: float | None
    """0…1, after all sampling settings; 0: they cut it off. None: the engine cannot say."""
    rank: int | None
    """1: no token was likelier, before the cuts; None: not known."""
    grammar: Verdict | None
    """None: the generation's grammar is not known any more."""


@dataclass(frozen=True, slots=True)
class TokenChoices:
    """The token that was written, and what could have been."""

    chosen: TokenChoice
    alternatives: tuple[TokenChoice, ...]
    """The likeliest others before the cuts, best first, `OTHER_CHOICES` at most."""


async def token_choices(
    engine: Engine | Runtime,
    ids: Sequence[int],
    index: int,
    sampling: Sampling,
    constraint: Constraint | Literal["unknown"] | None = "unknown",
    *,
    start: int,
) -> TokenChoices:
    """Return what could have come in place of ``ids[index]``, which a generation wrote from ``start``
    on. ``constraint``: a new one, as it was at ``start``; None: it had none. Raises ValueError for an
    index that is not there, EngineError, ContextOverflowError."""
    if index == start == 0 and ids:
        raise EngineError("Nothing is read before the first token, so nothing is known of it.")
    if not 0 < start <= index < len(ids):
        raise ValueError(f"There is no token {index:,} from {start:,} to {len(ids):,}.")
    written = index - start
    request = _request(
        ids[:index], [ids[index]], sampling, logprobs=OTHER_CHOICES + 1, continued_tokens=written
    )
    async with aclosing(_scores(engine, request)) as scores:
        (logprob,) = await anext(scores)
    if not logprob.top:
        raise EngineError(_NOT_REPORTED)
    return await describe_choices(logprob, ids[start:index], constraint)


async def describe_choices(
    logprob: Logprob, before: Sequence[int], constraint: Constraint | Literal["unknown"] | None
) -> TokenChoices:
    """Join what the engine and the grammar say of a token. ``logprob``: with `OTHER_CHOICES` + 1
    alternatives. ``before``: what the generation had written."""
    allowed: npt.NDArray[np.intp] | None = None
    if constraint is not None and not isinstance(constraint, str):
        # Grammars may have to be compiled, and are matched token by token.
        allowed = await asyncio.to_thread(_allowed_after, constraint, before)
    is_free = constraint is None

    def verdict(token: int) -> Verdict | None:
        if allowed is None:
            return "free" if is_free else None
        if not (allowed == token).any():
            return "forbidden"
        return "forced" if len(allowed) == 1 else "free"

    def rank(value: float) -> int:
        return 1 + sum(other > value for _, other in logprob.top)

    chances = logprob.top_probabilities or [None] * len(logprob.top)
    alternatives = tuple(
        TokenChoice(token, value, chance, rank(value), verdict(token))
        for (token, value), chance in zip(logprob.top, chances, strict=True)
        if token != logprob.token
    )
    written, own = logprob.token, logprob.rank
    if own is None and any(token == written for token, _ in logprob.top):
        own = rank(logprob.logprob)
    chosen = TokenChoice(written, logprob.logprob, logprob.probability, own, verdict(written))
    return TokenChoices(chosen, alternatives[:OTHER_CHOICES])


def _allowed_after(constraint: Constraint, before: Sequence[int]) -> npt.NDArray[np.intp] | None:
    """The ids that a grammar allows after others; None where it is not the one that they came by."""
    return constraint.allowed() if all(map(constraint.accept, before)) else None


async def token_logprobs(
    engine: Engine | Runtime, ids: Sequence[int], start: int, stop: int
) -> list[float]:
    """Return the natural-log probability of each of ``ids[start:stop]``, in the model's own
    distribution. Raises as `token_choices`."""
    if not 0 < start <= stop <= len(ids):
        raise ValueError(f"There are no tokens from {start:,} to {stop:,}, only {len(ids):,}.")
    values: list[float] = []
    greedy = Sampling(temperature=0)
    for at in range(start, stop, PIECE_TOKENS):
        piece = ids[at : min(at + PIECE_TOKENS, stop)]
        request = _request(ids[:at], piece, greedy, logprobs=0)
        async with aclosing(_scores(engine, request)) as scores:
            async for logprobs in scores:
                values += [each.logprob for each in logprobs]
    return values


def _request(
    prompt: Sequence[int],
    forced_ids: Sequence[int],
    sampling: Sampling,
    *,
    logprobs: int,
    continued_tokens: int = 0,
) -> Request:
    forced = list(forced_ids)
    return Request(
        list(prompt),
        len(forced),
        sampling=sampling,
        logprobs=logprobs,
        probabilities=logprobs > 0,
        continued_tokens=continued_tokens,
        constraint=ForcedTokens(forced),
        constraint_spec=lambda: {SPEC_FIELD: forced},
        background=True,
        auxiliary=True,
        private=True,
    )


async def _scores(engine: Engine | Runtime, request: Request) -> AsyncGenerator[list[Logprob]]:
    """Yield what the engine reports of the tokens; all of them, or it raises EngineError."""
    generation, left = engine.generate(request), request.max_tokens or 0
    try:
        async for event in generation:
            if isinstance(event, Tokens):
                logprobs = [each for each in event.logprobs or () if each is not None]
                if len(logprobs) < len(event.ids):
                    raise EngineError(_NOT_REPORTED)
                left -= len(logprobs)
                yield logprobs
            elif isinstance(event, Finished) and left > 0:
                raise EngineError(_NO_RESULT.get(event.reason, _NOT_REPORTED))
    finally:
        generation.cancel()
