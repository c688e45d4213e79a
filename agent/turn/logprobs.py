"""Log probabilities of tokens: which piece of text they belong to, and how they are written."""

from collections.abc import Sequence
from typing import Any

from agent.engine.protocol import Logprob
from agent.events import TokenProbability
from agent.formats.protocol import Format


class LogprobBuffer:
    """Sampled tokens whose text has not come out of the parser yet."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self._pending: list[tuple[int, Logprob | None]] = []

    def add(self, token: int, logprob: Logprob | None) -> None:
        """Add the next token, with None if its log probability is unknown; markup is left out."""
        if not self._form.is_markup(token):
            self._pending.append((token, logprob))

    def take(self, text: str = "") -> list[Logprob]:
        """Remove all tokens, and return what is known of the last ones, those that make up ``text``."""
        if not (pending := self._pending):
            return []
        remaining = len(text.encode())
        self._pending = []
        first = len(pending)
        while first and remaining > 0:
            first -= 1
            remaining -= len(self._form.token_bytes(pending[first][0]))
        return [logprob for _, logprob in pending[first:] if logprob is not None]


def part_logprobs(logprobs: Sequence[Logprob], form: Format) -> list[dict[str, Any]]:
    return [
        _token_logprob(form, sampled.token, sampled.logprob)
        | {"top_logprobs": [_token_logprob(form, token, value) for token, value in sampled.top]}
        for sampled in logprobs
    ]


def event_logprobs(logprobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ``logprobs`` of text events: those of the part, without ``bytes``."""
    return [
        {
            "token": token["token"],
            "logprob": token["logprob"],
            "top_logprobs": [
                {"token": other["token"], "logprob": other["logprob"]}
                for other in token["top_logprobs"]
            ],
        }
        for token in logprobs
    ]


def recorded_logprob(logprob: Logprob | None) -> TokenProbability | None:
    """A token's log probability as ``agent.tokens`` has it; None: it is not known."""
    if logprob is None:
        return None
    chances = logprob.top_probabilities or [None] * len(logprob.top)
    pairs = zip(logprob.top, chances, strict=True)
    return TokenProbability.model_construct(  # ours: nothing to validate
        logprob=round(logprob.logprob, 5),
        probability=_short(logprob.probability),
        rank=logprob.rank,
        top=[(token, round(value, 5), _short(chance)) for (token, value), chance in pairs],
    )


def _short(probability: float | None) -> float | None:
    """Four digits: decimals would make one that is small the 0 of what is cut off."""
    return probability and float(f"{probability:.4g}")


def sampled_logprob(token: int, recorded: TokenProbability) -> Logprob:
    """The reverse of `recorded_logprob`."""
    chances = tuple(chance for *_, chance in recorded.top if chance is not None)
    return Logprob(
        token,
        recorded.logprob,
        tuple((other, value) for other, value, _ in recorded.top),
        recorded.rank,
        recorded.probability,
        chances if len(chances) == len(recorded.top) else None,
    )


def _token_logprob(form: Format, token: int, logprob: float) -> dict[str, Any]:
    raw = form.token_bytes(token)
    return {"token": raw.decode("utf-8", "replace"), "bytes": list(raw), "logprob": logprob}
