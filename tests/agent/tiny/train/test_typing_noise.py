"""What is typed around a request changes; the values stay."""

from __future__ import annotations

import random
import re

import pytest

from agent.tiny.train import corpus, typing_noise

REQUESTS = (
    "What is {a} times {b}?",
    "Turn {state=on|out} the {lamp=desk lamp} please.",
    "{n}!",
    "x",
)


@pytest.mark.parametrize("request_text", REQUESTS)
def test_braces_stay_as_they_are(request_text: str) -> None:
    rng = random.Random(2)
    for _ in range(400):
        varied = typing_noise.vary(rng, request_text)
        assert re.findall(r"\{[^{}]*\}", varied) == re.findall(r"\{[^{}]*\}", request_text)
        assert corpus.parse_marks(varied).arguments(0) == corpus.parse_marks(
            request_text
        ).arguments(0)
        assert varied.strip()


def test_one_request_has_many_wordings() -> None:
    rng = random.Random(3)
    wordings = {
        typing_noise.vary(rng, "How many children are there in {n} classes?") for _ in range(300)
    }
    assert len(wordings) > 120 and "how many kids are there in {n} classes?" in {
        text.lower() for text in wordings
    }
