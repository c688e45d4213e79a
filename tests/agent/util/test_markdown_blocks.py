"""Markdown that arrives in pieces, cut between its top-level blocks."""

import pytest
from markdown_it import MarkdownIt

from agent.util.markdown_blocks import MarkdownBlocks

PARSERS = {
    "app": MarkdownIt("gfm-like", {"html": False}).parse,
    "command line": MarkdownIt("commonmark").enable("table").parse,
}
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


TEXT = (
    "# Title\n\nA paragraph.\n\n```python\na = 1\n\nb = 2\n```\n\n"
    "- one\n- two\n\n| a |\n|---|\n| 1 |\n"
)


def cut(text: str, size: int, parser: str) -> list[str]:
    """Feed a text in pieces of a size; return its blocks."""
    blocks = MarkdownBlocks(PARSERS[parser])
    closed: list[str] = []
    for at in range(0, len(text), size):
        closed += blocks.feed(text[at : at + size])
    return closed + blocks.finish()


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("step", [1, 3, 17, 1000])
def test_markdown_blocks_any_pieces_lose_nothing(step: int, parser: str) -> None:
    blocks, closed = MarkdownBlocks(PARSERS[parser]), ""
    for at in range(0, len(MARKDOWN), step):
        closed += "".join(blocks.feed(MARKDOWN[at : at + step]))
    assert closed + blocks.open == MARKDOWN
    assert blocks.open.startswith("The last")


@pytest.mark.parametrize("parser", PARSERS)
def test_markdown_blocks_any_pieces_give_each_block(parser: str) -> None:
    for size in (1, 3, 7, 1000):
        assert "".join(cut(TEXT, size, parser)) == TEXT
        assert len(cut(TEXT, size, parser)) == 5
    assert any("a = 1\n\nb = 2" in block for block in cut(TEXT, 1, parser)), "a fence is one block"


def test_markdown_blocks_open_fence_is_not_cut() -> None:
    blocks = MarkdownBlocks(PARSERS["app"])
    assert blocks.feed("```\n") == []
    for number in range(50):
        assert blocks.feed(f"line {number}\n\n") == []
    assert blocks.feed("```\n\nAnd then some.")[0].startswith("```\nline 0")


def test_markdown_blocks_finish_cuts_what_was_not_clear() -> None:
    blocks = MarkdownBlocks(PARSERS["command line"])
    assert blocks.feed("One.\n\nTwo") == []
    assert blocks.finish() == ["One.\n\n", "Two"]
    assert blocks.finish() == []
