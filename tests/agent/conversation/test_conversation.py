"""A conversation keeps the ids that the model read and wrote."""

from functools import cache

import openai_harmony
import pytest

from agent.conversation.conversation import Conversation, Span
from agent.conversation.messages import (
    Assistant,
    Message,
    ReasoningMessage,
    ToolCallMessage,
    ToolResultMessage,
    User,
)
from agent.formats.harmony import encoding
from agent.formats.harmony.format import HarmonyFormat
from agent.formats.protocol import PromptHeader, SegmentKind
from agent.tiny.vocabulary import ranks


@cache
def form() -> HarmonyFormat:
    return HarmonyFormat(encoding.load_encoding(ranks))


def ids(markup: str) -> list[int]:
    return list(form().encoding.encode(markup, allowed_special="all"))


def text(conversation: Conversation) -> str:
    return str(form().encoding.decode(conversation.prompt(form())))


THINK = "<|channel|>analysis<|message|>Hm.<|end|>"
CALL = "<|start|>assistant<|channel|>analysis to=python code<|message|>1+1<|call|>"
FINAL = "<|channel|>final<|message|>2<|return|>"


def new_conversation() -> Conversation:
    conversation = Conversation("c")
    conversation.set_header(form(), PromptHeader(date="2026-01-01"))
    conversation.add(form(), User("1+1?"))
    return conversation


def test_generated_ids_stay_in_prompt() -> None:
    conversation = new_conversation()
    generated = ids(THINK + CALL)
    cut = len(ids(THINK))
    spans = [
        Span(0, cut, SegmentKind.REASONING, True, "rs"),
        Span(cut, len(generated), SegmentKind.TOOL, True, "mcp"),
    ]
    before = conversation.prompt(form())
    conversation.add_generated(form(), generated, spans)
    conversation.add_result(form(), "python", "2")
    assert conversation.prompt(form())[: len(before) + len(generated)] == before + generated


def test_affinity_tokens_are_those_of_all_prompts() -> None:
    """The header and the first user's message: later prompts begin with them, few others do."""
    conversation = Conversation("c")
    conversation.set_header(form(), PromptHeader(date="2026-01-01"))
    assert conversation.affinity_tokens == 0
    conversation.add(form(), User("1+1?"))
    first, count = conversation.ids(), conversation.affinity_tokens
    assert count == len(first)
    conversation.add_generated(form(), ids(FINAL), [Span(0, 5, SegmentKind.FINAL, True, "m")])
    conversation.end_turn()
    conversation.add(form(), User("and 2+2?"))
    assert conversation.affinity_tokens == count and conversation.ids()[:count] == first


def test_end_turn_drops_only_reasoning() -> None:
    conversation = new_conversation()
    generated = ids(THINK + CALL)
    cut = len(ids(THINK))
    conversation.add_generated(
        form(),
        generated,
        [
            Span(0, cut, SegmentKind.REASONING, True, "rs"),
            Span(cut, len(generated), SegmentKind.TOOL, True, "m"),
        ],
    )
    conversation.add_result(form(), "python", "2")
    final = ids(FINAL)
    conversation.add_generated(form(), final, [Span(0, len(final), SegmentKind.FINAL, True, "msg")])
    conversation.end_turn()
    prompt = text(conversation)
    assert "Hm." not in prompt
    assert "to=python code<|message|>1+1<|call|><|start|>python to=assistant" in prompt
    assert prompt.endswith("<|channel|>final<|message|>2<|end|><|start|>assistant")


PYTHON = [ToolCallMessage("python", "1+1", json=False), ToolResultMessage("python", "2")]
BROWSER = [ToolCallMessage("browser.open", "{}"), ToolResultMessage("browser.open", "page")]
FUNCTION = [
    ToolCallMessage("python", '{"a": 1}', function=True),
    ToolResultMessage("python", "3", function=True),
]
PREAMBLE = Assistant("I look.", "commentary")


@pytest.mark.parametrize(
    "history",
    [
        [*PYTHON, *BROWSER, Assistant("2")],
        [*PYTHON, PREAMBLE, *FUNCTION, *BROWSER, Assistant("3"), User("And?"), *PYTHON],
        [*PYTHON, *FUNCTION],
        [*PYTHON, Assistant("2"), User("And?"), *FUNCTION, *BROWSER, Assistant("4"), User("x")],
        [ReasoningMessage("Hm."), *PYTHON, ReasoningMessage("So."), *BROWSER],
    ],
)
def test_prompt_has_messages_of_reference(history: list[Message]) -> None:
    conversation = new_conversation()
    for message in history:
        conversation.add(form(), message)
    everything = [entry.ids for entry in conversation.entries]
    conversation.omit_answered_calls(form())
    assert [entry.ids for entry in conversation.entries] == everything, "they stay, for the app"
    # openai-harmony drops nothing behind the first answer, so it gets each turn by itself.
    turns: list[list[openai_harmony.Message]] = [[]]
    for written in everything:
        turns[-1] += form().encoding.parse_messages_from_completion_tokens(written, role=None)
        if turns[-1][-1].channel == "final":
            turns.append([])
    rendered = [
        form().encoding.decode(
            form().encoding.render_conversation(
                openai_harmony.Conversation.from_messages(turn),
                openai_harmony.RenderConversationConfig(auto_drop_analysis=True),
            )
        )
        for turn in turns
        if turn
    ]
    ours = form().encoding.decode(conversation.ids()[len(conversation.header_ids) :])
    contents = ("1+1<", "page<", ">2<", ">3<", ">4<", "I look.", "Hm.", "So.", "<|start|>")
    assert [ours.count(t) for t in contents] == ["".join(rendered).count(t) for t in contents]


def test_pinned_call_stays_in_prompt_and_unanswered_call_returns() -> None:
    conversation = new_conversation()
    for message in [*PYTHON, Assistant("2")]:
        conversation.add(form(), message)
    conversation.omit_answered_calls(form())
    assert "to=python" not in text(conversation)
    branch = conversation.branch("d", before=3)
    branch.omit_answered_calls(form())
    assert "to=python" in text(branch), "its turn has no answer"
    for entry in conversation.entries:
        entry.pinned = True
    conversation.omit_answered_calls(form())
    assert "to=python" in text(conversation) and "python to=assistant" in text(conversation)


def test_model_that_was_trained_so_keeps_calls() -> None:
    conversation = new_conversation()
    for message in [*PYTHON, Assistant("2")]:
        conversation.add(form(), message)
    conversation.omit_answered_calls(form())
    conversation.omit_answered_calls(HarmonyFormat(form().encoding, keep_calls=True))
    assert "to=python" in text(conversation), "after a change to it, too"


def test_function_called_in_reasoning_channel_goes_with_its_result() -> None:
    conversation = new_conversation()
    generated = ids('<|channel|>analysis to=functions.f code<|message|>{"a": 1}<|call|>')
    span = Span(0, len(generated), SegmentKind.TOOL, True, "fc")
    conversation.add_generated(form(), generated, [span])
    conversation.add_result(form(), "functions.f", "result")
    conversation.add(form(), Assistant("3"))
    conversation.omit_answered_calls(form())
    assert "functions.f" not in text(conversation) and "result" not in text(conversation)


def test_generated_call_is_closed_as_call() -> None:
    conversation = new_conversation()
    generated = ids("<|channel|>analysis to=python code<|message|>1+1<|return|>")
    conversation.add_generated(
        form(), generated, [Span(0, len(generated), SegmentKind.TOOL, True, "m")]
    )
    assert "1+1<|call|>" in text(conversation)


def test_cut_off_message_is_closed() -> None:
    conversation = new_conversation()
    generated = ids("<|channel|>final<|message|>It")
    conversation.add_generated(
        form(), generated, [Span(0, len(generated), SegmentKind.FINAL, False, "m")]
    )
    assert text(conversation).endswith("<|message|>It<|end|><|start|>assistant")


def test_unchanged_header_is_not_rendered_again() -> None:
    conversation = new_conversation()
    first = conversation.prompt(form())
    conversation.set_header(form(), PromptHeader(date="2026-01-01"))
    assert conversation.prompt(form()) == first
    conversation.set_header(form(), PromptHeader(date="2026-01-02"))
    assert conversation.prompt(form()) != first


def test_imported_call_and_result_are_rendered() -> None:
    conversation = new_conversation()
    conversation.add(form(), ToolCallMessage("get_weather", '{"city":"Rome"}'))
    conversation.add(form(), ToolResultMessage("get_weather", "18 °C"))
    assert (
        "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
        '<|message|>{"city":"Rome"}<|call|><|start|>functions.get_weather to=assistant'
        "<|channel|>commentary<|message|>18 °C<|end|>"
    ) in text(conversation)
