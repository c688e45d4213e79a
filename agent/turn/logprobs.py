"""Which tokens' log probabilities belong to which piece of text, and how they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.engine.protocol import Logprob
from agent.formats.protocol import Format


class Spoken:
    """Tokens that were said and whose text has not come out of the parser yet."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self._held: list[Logprob] = []

    def add(self, logprob: Logprob) -> None:
        if not self._form.is_markup(logprob.token):
            self._held.append(logprob)

    def take(self, text: str = "") -> list[Logprob]:
        """The last tokens, as many as this text is made of; those before them were no text."""
        left, held = len(text.encode()), self._held
        self._held = []
        at = len(held)
        while at and left > 0:
            at -= 1
            left -= len(self._form.spelling(held[at].token))
        return held[at:]


def shown(logprobs: Sequence[Logprob], form: Format) -> list[dict[str, Any]]:
    """As a part of a message has them."""
    return [
        _one(form, said.token, said.logprob)
        | {"top_logprobs": [_one(form, token, value) for token, value in said.top]}
        for said in logprobs
    ]


def streamed(shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As the events of a text have them: without bytes."""
    return [
        {
            "token": one["token"],
            "logprob": one["logprob"],
            "top_logprobs": [
                {"token": other["token"], "logprob": other["logprob"]}
                for other in one["top_logprobs"]
            ],
        }
        for one in shown
    ]


def _one(form: Format, token: int, logprob: float) -> dict[str, Any]:
    raw = form.spelling(token)
    return {"token": raw.decode("utf-8", "replace"), "bytes": list(raw), "logprob": logprob}
