"""Texts of a turn are coloured by their own tokens, not by equal ones in calls and markup."""

import pytest

from agent import events as ev
from tui.state.token_colours import colour_texts

MESSAGE, END, CALL = (b"<|message|>", 1.0), (b"<|end|>", 1.0), (b"<|call|>", 1.0)
HEADER = [(b"<|start|>", 1.0), (b"assistant", 1.0), (b"<|channel|>", 1.0), (b"final", 1.0), MESSAGE]


def answer(text: str) -> ev.MessageItem:
    part = ev.OutputText(text=text)
    return ev.MessageItem(id="msg_1", status="completed", content=[part])


def call(arguments: str) -> ev.McpCallItem:
    return ev.McpCallItem(
        id="mcp_1", status="completed", server_label="s", name="t", arguments=arguments
    )


@pytest.mark.parametrize(
    ("calls", "pieces", "text"),
    [
        (['{"n":4}'], [MESSAGE, (b'{"n":', 1.0), (b"4", 0.95), (b"}", 1.0), CALL], "4"),
        (['{"code": "4"}'], [MESSAGE, (b"4", 0.95), CALL], "4"),
        ([], [], "a"),
    ],
    ids=["an argument", "code", "letters of the markup"],
)
def test_answer_that_equals_something_before_has_its_own_probability(
    calls: list[str], pieces: list[tuple[bytes, float]], text: str
) -> None:
    pieces = [*pieces, *HEADER, (text.encode(), 0.001), END]
    runs, note = colour_texts([*map(call, calls), answer(text)], pieces)
    assert note == "100.0 % surprising"
    assert len(runs["msg_1"]) == 1


def test_character_of_several_tokens_and_text_without_markup_are_coloured() -> None:
    raw = "é!".encode()
    runs, note = colour_texts([answer("é!")], [(raw[:1], 0.5), (raw[1:2], 0.001), (b"!", 0.9)])
    assert [text for text, _ in runs["msg_1"]] == ["é", "!"]
    assert note == "33.3 % surprising"


def test_repaired_text_is_left_out() -> None:
    assert colour_texts([answer("what was mended")], [*HEADER, (b"other", 0.5), END]) == ({}, "")
