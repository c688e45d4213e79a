"""Answers as JSON in the training data."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from agent.tiny.train import answer_form, data
from agent.tiny.train.answer_form import AnswerProperty
from agent.tiny.train.turns import DialogueCall, DialogueTurn
from agent.turn.options import response_format_section


def schema_of(section: str) -> dict[str, Any] | None:
    """The schema of a section; None: it asks for any object."""
    _, _, text = section.rpartition("\n\n")
    schema: dict[str, Any] | None = json.loads(text) if text.startswith("{") else None
    return schema


@pytest.mark.parametrize("result", ["7", "-2", "3.68", "abc", "1e400", "7" * 40])
def test_answer_fits_its_section(result: str) -> None:
    turn = DialogueTurn("?", [], [DialogueCall(None, ["x"], result, code="x")])
    for seed in range(60):
        rng = random.Random(seed)
        form = answer_form.choose(rng)
        schema = schema_of(answer_form.section(rng, form))
        if schema is not None:
            jsonschema.validate(json.loads(answer_form.answer(turn, form, data.encode)), schema)


def test_answer_has_text_and_number() -> None:
    turn = DialogueTurn("7 * 8", [], [DialogueCall(None, ["7 * 8"], "56", code="7 * 8")])
    form = tuple(
        AnswerProperty(*pair) for pair in [("total", "integer"), ("a", "string"), ("b", "boolean")]
    )
    answer = answer_form.answer(turn, form, data.encode)
    assert answer == '{"total":56,"a":"7 * 8 = 56.","b":true}'
    chat = DialogueTurn("hi", [], reply='Say "hi".\n')
    answer = answer_form.answer(chat, form, data.encode)
    assert answer == '{"total":0,"a":"Say \\"hi\\".\\n","b":false}'


def test_section_is_worded_as_the_program_words_it() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        section = answer_form.section(rng, answer_form.choose(rng))
        if (schema := schema_of(section)) is not None:
            name = section.split("\n")[2].removeprefix("## ")
            assert section == response_format_section(schema, name)


@pytest.mark.long
def test_prefix_that_asks_for_a_form_has_answers_in_it() -> None:
    rng = random.Random(3)
    while not (prefix := data.make_prefix(rng, "train")).form:
        pass
    assert "# Response Formats" in data.encoding().decode(prefix.ids)
    # By tokens, not by text: an excerpt that is copied may quote the text of a token.
    begin = [data.CHANNEL_ID, *data.encode("final"), data.MESSAGE_ID]
    finals = 0
    for segment in data.make_segments(rng, prefix, 40):
        ids = segment.ids
        for at in range(len(begin), len(ids)):  # of finished turns too
            if ids[at - len(begin) : at] == begin:
                end = next(
                    i for i in range(at, len(ids)) if ids[i] in (data.END_ID, data.RETURN_ID)
                )
                json.loads(data.encoding().decode(ids[at:end]))
                finals += 1
    assert finals > 10
