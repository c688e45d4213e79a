"""The parts that are not seen: wrapping, growing Markdown, harmless text, what was sent before."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from rich.cells import cell_len

from agent import events as ev
from tui.markdown.blocks import Blocks
from tui.markdown.citations import cited
from tui.markdown.highlight import Written, arguments
from tui.state.prompt_history import KEPT, History
from tui.state.turn_view import Said
from tui.util.format import count, seconds, shown, wrap
from tui.widgets.text_stream import INSET

SIGNS = (*"ab  中é🙂-ש한", "e\u0301", "❤️", "👍🏽", "👨‍👩‍👧", "🏳️‍🌈", "क्षि", "1️⃣")


@pytest.mark.parametrize("width", [1, 2, 7, 40])
def test_wrapping_keeps_every_character_and_every_row_fits(width: int) -> None:
    made = random.Random(width)
    for _ in range(200):
        text = "".join(made.choice(SIGNS) for _ in range(made.randrange(0, 90)))
        rows = wrap(text, width)
        assert "".join(text[a:b] for a, b in rows) == text
        assert all(b > a for a, b in rows) or text == ""
        if width > 1:
            assert sum(cell_len(text[a:b]) for a, b in rows) == cell_len(text), "no sign is parted"
            assert all(cell_len(text[a:b].rstrip(" ")) <= width for a, b in rows)


def test_wrapping_what_was_added_is_wrapping_all() -> None:
    made = random.Random(5)
    text, rows = "", [(0, 0)]
    for _ in range(300):
        text += "".join(
            made.choice((*"abc 中", "👨", "\u200d👩", "\u0301"))
            for _ in range(made.randrange(1, 9))
        )
        start = rows.pop()[0]
        rows += wrap(text, 12, start)
        assert rows == wrap(text, 12)


MARKDOWN = """# Title

A paragraph
of two lines.

- one

- two
  - nested

```python
a = 1

b = 2
```

| a | b |
|---|---|
| 1 | 2 |

The last paragraph."""


@pytest.mark.parametrize("step", [1, 3, 17, 1000])
def test_markdown_in_pieces_loses_nothing(step: int) -> None:
    blocks, closed = Blocks(), ""
    for at in range(0, len(MARKDOWN), step):
        closed += blocks.feed(MARKDOWN[at : at + step])
    assert closed + blocks.open == MARKDOWN
    assert blocks.open.startswith("The last")


def test_a_code_block_stays_whole() -> None:
    blocks = Blocks()
    assert blocks.feed("```\n") == ""
    for number in range(50):
        assert blocks.feed(f"line {number}\n\n") == ""
    assert blocks.feed("```\n\nAnd then some.").startswith("```\nline 0")


def test_nothing_that_steers_a_terminal_is_shown() -> None:
    hostile = "\x1b[2J\x1b]0;title\x07\x1bP1$r\x1b\\ \x9b31m \x00\x08\x07 \u202egnp.exe\u202c ok"
    harmless = shown(hostile)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in harmless)
    assert "\u202e" not in harmless and harmless.endswith("ok")
    assert shown("a\r\nb\rc\td") == "a\nb\nc   d"
    assert shown("\x1b[31mred\x1b[0m") == "red"


def read(text: str, tool: str = "") -> str:
    return "".join(piece for piece, _ in arguments(text, tool))


def test_arguments_are_shown_as_what_they_are() -> None:
    assert read('{"code":"a = 1\\nprint(a)\\n"}', "x · python") == "a = 1\nprint(a)"
    assert ("print", "name") in arguments('{"code":"print(1)"}', "code_interpreter · python")
    assert read('{"expression":"2+2"}') == '{"expression": "2+2"}'
    assert read('{"half') == '{"half'
    assert json.loads(read(json.dumps({"long": "x" * 80}))) == {"long": "x" * 80}
    assert "\x1b" not in read('{"code":"\\u001b[2J\\n"}')
    assert ("+new\n", "added") in arguments('{"input":"*** Begin Patch\\n+new\\n-old"}')


def test_a_text_among_other_arguments_is_read_as_text() -> None:
    edit = {"path": "a.py", "edits": [{"old": "def f():\n    pass\n", "new": "x"}], "dry": False}
    assert read(json.dumps(edit)) == (
        '{\n  "path": "a.py",\n  "edits": [\n    {\n      "old": \ndef f():\n    pass\n'
        '      "new": "x"\n    }\n  ],\n  "dry": false\n}'
    )
    runs = arguments(json.dumps(edit))
    assert ("def", "keyword" + INSET) in runs and ("f", "name" + INSET) in runs
    assert {style.endswith(INSET) for piece, style in runs if '"' in piece} == {False}
    assert read('{"a":"1\\n2","path":"x.unheard-of"}').splitlines()[1:4] == ['  "a": ', "1", "2"]
    assert "\x1b" not in read('{"\\u001b[2J":1,"b":"\\u001b[2J\\n\\u001b[2J"}')
    deep = '{"a":' * 900 + '"1\\n2"' + "}" * 900
    assert "1" in read(deep) and read("[" * 100_000) == "[" * 100_000


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_code_is_code_while_it_comes(step: int) -> None:
    code = 'print("a\\n")\n\t# é🙂 \\ "'
    for text, expected in (
        (json.dumps({"code": code}), code),
        (json.dumps({"code": code}, ensure_ascii=False, separators=(",", ":")), code),
        ('{"path": "a\\n"}', '{"path": "a\\n"}'),
    ):
        written = Written()
        pieces = [written.feed(text[at : at + step]) for at in range(0, len(text), step)]
        assert "".join(pieces) == expected


def test_nothing_comes_after_the_end_of_a_turn() -> None:
    said = Said("hi", clock=lambda: 0.0)
    said.take(ev.AgentLoad(done=500, total=1000))
    assert said.doing == "loading the model 50 %"
    response = ev.Response(id="resp_1", created_at=0, model="tiny", status="completed")
    said.take(ev.ResponseCompleted(response=response))
    said.take(ev.AgentLoad(done=900, total=1000))
    assert (said.doing, said.running) == ("", False)


def test_numbers_as_people_read_them() -> None:
    assert [seconds(s) for s in (0.44, 12.3, 185)] == ["0.4 s", "12 s", "3 min 05 s"]
    assert [count(n) for n in (950, 1234, 32768)] == ["950", "1.2k", "33k"]


def test_what_was_sent_comes_back_in_the_next_session(tmp_path: Path) -> None:
    file = tmp_path / "state" / "prompts.jsonl"
    first = History(file)
    for text in ("one", "two\nlines", "two\nlines"):
        first.add(text)
    again = History(file)
    assert again.earlier("draft") == "two\nlines"
    assert again.earlier("draft") == "one"
    assert again.earlier("draft") is None
    assert again.later() == "two\nlines"
    assert again.later() == "draft"
    assert again.later() is None


@pytest.mark.parametrize("there", [False, True])
def test_nobody_else_reads_what_was_sent(tmp_path: Path, there: bool) -> None:
    file = tmp_path / "prompts.jsonl"
    if there:
        file.touch(0o644)
    History(file).add("a secret")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == '"a secret"\n'


def test_the_file_of_prompts_stays_small_and_survives_damage(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(f'"{n}"\n' for n in range(3 * KEPT)) + '"cut o')
    history = History(file)
    assert history.earlier("") == str(3 * KEPT - 1)
    assert len(file.read_text().splitlines()) < KEPT + 1


def test_what_is_cited_is_linked_and_listed() -> None:
    text, mark = "So it is【1†L2】, and so【1†L4】.", "【1†L2】"
    at = [text.index(mark), text.rindex("【")]
    found = [
        {"type": "url_citation", "start_index": start, "end_index": start + len(mark),
         "title": "A [bold] title", "url": "https://example.org/a"}
        for start in at
    ]  # fmt: skip
    link = r"[\[1\]](<https://example.org/a>)"
    source = r"1. [A \[bold\] title](<https://example.org/a>)"
    assert cited(text, found) == f"So it is{link}, and so{link}.\n\n{source}"
    assert cited(text, []) == text
