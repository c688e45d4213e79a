"""A kept conversation written out: whole, and as harmless as text is."""

from __future__ import annotations

import json

from agent import events as ev
from agent.conversation.conversation import Compacted, Conversation, Entry
from agent.store.export import Record, as_json, markdown, page, tokens
from agent.store.records import KeptTurn, Summary

EVIL = "</pre><script>alert(1)</script> ```` {0} %s"


def record() -> Record:
    output = [
        ev.ReasoningItem(id="r", content=[ev.ReasoningText(text="two\nlines")]),
        ev.McpCallItem(id="c", server_label="s", name="t", arguments='{"code":"1+1"}', output=EVIL),
        ev.McpCallItem(
            id="d", server_label="s", name="t", error=ev.McpProtocolError(code=1, message="gone")
        ),
        ev.FunctionCallItem(id="f", call_id="x", name="mine", arguments="{}"),
        ev.MessageItem(id="m", content=[ev.OutputText(text=EVIL)]),
    ]
    first = ev.Response(id="1", created_at=0, model="tiny", output=output, status="completed")
    failed = ev.ResponseError(code="server_error", message="It broke.")
    second = ev.Response(id="2", created_at=0, model="tiny", error=failed, status="failed")
    third = ev.Response(id="3", created_at=0, model="tiny", status="cancelled")
    talk = Conversation(
        "conv_1",
        [Entry([1], role="user"), Entry([2], role="assistant"), Entry([3, 4], short=[5])],
        compacted=Compacted(2, "What was said.", [9]),
    )
    turns = [KeptTurn(EVIL, first, 0), KeptTurn("b", second, 2), KeptTurn("c", third, 2)]
    return Record(Summary("conv_1", EVIL, "tiny", 0, 0, None, 0, 3), talk, turns)


def test_markdown_holds_everything_in_order() -> None:
    text = markdown(record())
    parts = ["## You", "> two\n> lines", "1+1", "gone", '"mine"', "## Answer", "What was said.",
             "## You\n\nb", "It broke.", "## You\n\nc", "cancelled"]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.count("What was said.") == 1
    assert f"`````\n{EVIL}\n`````" in text, "a fence that nothing in it ends"


def test_a_page_holds_no_markup_but_its_own() -> None:
    text = page(record())
    assert "<script" not in text and text.count("</pre>") == text.count("<pre")
    assert text.count("&lt;script&gt;") == 5  # title twice, prompt, result, answer


def test_programs_get_turns_and_tokens() -> None:
    shown = json.loads(as_json(record()))
    assert [turn["entry"] for turn in shown["conversation"]] == [0, 2, 2]
    assert shown["summary"] == "What was said."
    lines = [json.loads(line) for line in tokens(record()).splitlines()]
    assert lines == [
        {"role": "user", "tokens": [1], "prompt": []},
        {"role": "assistant", "tokens": [2], "prompt": []},
        {"role": "summary", "tokens": [9]},
        {"role": None, "tokens": [3, 4], "prompt": [5]},
    ]
