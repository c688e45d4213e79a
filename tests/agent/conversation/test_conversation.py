"""What was said stays as the ids that the model saw and wrote."""

from __future__ import annotations

from agent.conversation.conversation import Called, Conversation, Returned, Span, User
from agent.formats.harmony import encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import Head, Kind
from agent.tiny.vocabulary import ranks

ENCODING = encoding.encoding(ranks())
FORM = HarmonyFormat(ENCODING)


def ids(markup: str) -> list[int]:
    return list(ENCODING.encode(markup, allowed_special="all"))


def text(conversation: Conversation) -> str:
    return str(ENCODING.decode(conversation.prompt(FORM)))


THINK = "<|channel|>analysis<|message|>Hm.<|end|>"
CALL = "<|start|>assistant<|channel|>analysis to=python code<|message|>1+1<|call|>"
FINAL = "<|channel|>final<|message|>2<|return|>"


def talk() -> Conversation:
    conversation = Conversation("c")
    conversation.set_head(FORM, Head(date="2026-01-01"))
    conversation.add(FORM, User("1+1?"))
    return conversation


def test_a_generation_is_kept_as_it_came() -> None:
    conversation = talk()
    generated = ids(THINK + CALL)
    cut = len(ids(THINK))
    spans = [
        Span(0, cut, Kind.REASONING, True, "rs"),
        Span(cut, len(generated), Kind.TOOL, True, "mcp"),
    ]
    before = conversation.prompt(FORM)
    conversation.add_generated(FORM, generated, spans)
    conversation.add_result(FORM, "python", "2")
    assert conversation.prompt(FORM)[: len(before) + len(generated)] == before + generated


def test_only_the_reasoning_of_a_finished_turn_goes() -> None:
    conversation = talk()
    generated = ids(THINK + CALL)
    cut = len(ids(THINK))
    conversation.add_generated(
        FORM,
        generated,
        [
            Span(0, cut, Kind.REASONING, True, "rs"),
            Span(cut, len(generated), Kind.TOOL, True, "m"),
        ],
    )
    conversation.add_result(FORM, "python", "2")
    final = ids(FINAL)
    conversation.add_generated(FORM, final, [Span(0, len(final), Kind.FINAL, True, "msg")])
    conversation.end_turn()
    said = text(conversation)
    assert "Hm." not in said
    assert "to=python code<|message|>1+1<|call|><|start|>python to=assistant" in said
    assert said.endswith("<|channel|>final<|message|>2<|end|><|start|>assistant")


def test_a_call_ends_as_a_call_whatever_ended_it() -> None:
    conversation = talk()
    generated = ids("<|channel|>analysis to=python code<|message|>1+1<|return|>")
    conversation.add_generated(FORM, generated, [Span(0, len(generated), Kind.TOOL, True, "m")])
    assert "1+1<|call|>" in text(conversation)


def test_what_was_cut_off_is_ended() -> None:
    conversation = talk()
    generated = ids("<|channel|>final<|message|>It")
    conversation.add_generated(FORM, generated, [Span(0, len(generated), Kind.FINAL, False, "m")])
    assert text(conversation).endswith("<|message|>It<|end|><|start|>assistant")


def test_a_head_that_stays_is_not_rendered_again() -> None:
    conversation = talk()
    first = conversation.prompt(FORM)
    conversation.set_head(FORM, Head(date="2026-01-01"))
    assert conversation.prompt(FORM) == first
    conversation.set_head(FORM, Head(date="2026-01-02"))
    assert conversation.prompt(FORM) != first


def test_a_history_from_elsewhere_has_the_models_own_form() -> None:
    conversation = talk()
    conversation.add(FORM, Called("get_weather", '{"city":"Rome"}'))
    conversation.add(FORM, Returned("get_weather", "18 °C"))
    assert (
        "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
        '<|message|>{"city":"Rome"}<|call|><|start|>functions.get_weather to=assistant'
        "<|channel|>commentary<|message|>18 °C<|end|>"
    ) in text(conversation)
