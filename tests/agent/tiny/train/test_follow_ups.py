"""Follow-ups that change a value of the request before."""

from __future__ import annotations

import random

import pytest

from agent.tiny.train import data
from agent.tiny.train.corpus_dialogues import value_context
from agent.tiny.train.dialogues import Talker
from agent.tiny.train.mixture import Mixture


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "value", "context"),
    [
        ("what is 15% of 60", "60", "of {0}"),
        ("what is 15% of 60", "15", "{0}%"),
        ("5 kg of rice for 12 people", "12", "for {0} people"),
        ("book a table in Rome for Anna", "Anna", "for {0}"),
        ("from 1 May to 3 June", "3 June", "to {0}"),
        ("360 and 36", "36", "{0}"),
        ("2.4 m by 3.1 m", "2.4", "{0} m"),
        ("take 8 or 75", "8", "{0}"),
        ("roof of 3", "3", "of {0}"),
        ("only words", "7", "{0}"),
    ],
)
def test_value_context(text: str, value: str, context: str) -> None:
    assert value_context(text, value) == context


@pytest.mark.long
def test_follow_up_changes_a_value_of_the_request() -> None:
    rng = random.Random(8)
    mixture = Mixture(Talker(rng, "train", True, [], data.clean, data.encode), [])
    changed = 0
    while changed < 100:
        before, asked = mixture.intent(), mixture.corpus.last_intent
        if before is None or asked is None or (after := mixture.corpus.again(asked)) is None:
            continue
        changed += 1
        assert after.call.values != before.calls[0].values, after.text
