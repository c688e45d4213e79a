"""What a follow-up says again of the request before."""

from __future__ import annotations

import pytest

from agent.tiny.train.corpus_dialogues import words_around


@pytest.mark.parametrize(
    ("text", "value", "around"),
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
def test_words_around_value(text: str, value: str, around: str) -> None:
    assert words_around(text, value) == around
