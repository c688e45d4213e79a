"""A kept conversation written out: whole, and as harmless as text is."""

import json

from agent import events as ev
from agent.conversation.conversation import CompactedPrefix, Conversation, Entry
from agent.store.export import FORMATS, ExportRecord, as_json, html_page, markdown, tokens
from agent.store.records import ConversationSummary, StoredTurn
from agent.util.sanitize import sanitize

EVIL = "</pre><script>alert(1)</script> ```` {0} %s"


def record() -> ExportRecord:
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
        [Entry([1], role="user"), Entry([2], role="assistant"), Entry([3, 4], shortened_ids=[5])],
        compacted=CompactedPrefix(2, "What was said.", [9]),
    )
    turns = [StoredTurn(EVIL, first, 0), StoredTurn("b", second, 2), StoredTurn("c", third, 2)]
    return ExportRecord(ConversationSummary("conv_1", EVIL, "tiny", 0, 0, None, 0, 3), talk, turns)


def test_markdown_lists_turns_in_order() -> None:
    text = markdown(record())
    parts = ["## You", "> two\n> lines", "1+1", "gone", '"mine"', "## Answer", "What was said.",
             "## You\n\nb", "It broke.", "## You\n\nc", "cancelled"]  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text.count("What was said.") == 1
    assert f"`````\n{EVIL}\n`````" in text, "a fence that nothing in it ends"


def test_exports_terminal_controls_removed() -> None:
    evil = "a\x1b]52;c;aGk=\x07b\x1b[2Jc\x9b2Jd\u202ee\x1b]0;open"
    item = ev.McpCallItem(id="c", server_label=evil, name=evil, arguments=evil, output=evil)
    answer = ev.MessageItem(id="m", content=[ev.OutputText(text=evil + "\x07 end")])
    reply = ev.Response(id="1", created_at=0, model=evil, output=[item, answer], status="completed")
    summary = ConversationSummary("conv_1", evil, evil, 0, 0, None, 0, 1)
    exported = ExportRecord(summary, Conversation("conv_1"), [StoredTurn(evil, reply, 0)])
    for write in FORMATS.values():
        text = write(exported)
        assert sanitize(text) == text
    # A sequence that is left open takes nothing of what follows with it.
    assert "end" in markdown(exported) and "## Answer" in markdown(exported)
    turn = json.loads(as_json(exported))["conversation"][0]
    assert turn["prompt"] == turn["response"]["model"] == evil, "JSON is exact"


def test_html_page_escapes_texts() -> None:
    text = html_page(record())
    assert "<script" not in text and text.count("</pre>") == text.count("<pre")
    assert text.count("&lt;script&gt;") == 5  # title twice, prompt, result, answer


def test_html_page_renders_answers_and_fetches_nothing() -> None:
    text = "| a | b |\n|---|---|\n| 1 | `x` |\n\n- one\n\n"
    text += "![i](http://h/i.png) <img src=x> [l](javascript:f)"
    answer = ev.MessageItem(id="m", content=[ev.OutputText(text=text)], phase="final_answer")
    reply = ev.Response(id="1", created_at=0, model="m", output=[answer], status="completed")
    summary = ConversationSummary("conv_1", "t", "m", 0, 0, None, 0, 1)
    page = html_page(ExportRecord(summary, Conversation("conv_1"), [StoredTurn("*q*", reply, 0)]))
    assert "<td>1</td>" in page and "<code>x</code>" in page and "<li>one</li>" in page
    assert "<pre>*q*</pre>" in page
    assert "<img" not in page and 'href="javascript' not in page


def test_json_and_tokens_have_turns_and_ids() -> None:
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
