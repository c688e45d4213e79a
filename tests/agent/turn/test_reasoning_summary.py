"""The parts of a summary, wherever the pieces of the text are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.turn.reasoning_summary import SummarySplitter, SummaryStyle

PLAN = """We need X. First, e.g. this.

**Plan**

Do it: 3.14.
## Next
Then
```py
a

b
```
end. \n
1. One
2. Two

"""


def parts(text: str, style: SummaryStyle, size: int) -> list[str]:
    splitter = SummarySplitter(style)
    result: list[str] = []
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    for piece, last in [*((piece, False) for piece in pieces), ("", True)]:
        for begins, delta in splitter.feed(piece, last=last):
            assert delta
            if begins:
                result.append("")
            result[-1] += delta
    return result


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_detailed_summary_is_cut_at_headings_and_paragraphs(size: int) -> None:
    assert parts(PLAN, "detailed", size) == [
        "We need X. First, e.g. this.",
        "**Plan**\n\nDo it: 3.14.",
        "## Next\nThen\n```py\na\n\nb\n```\nend.",
        "1. One\n2. Two",
    ]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (PLAN, "We need X."),
        ("It is 3.14. Good.", "It is 3.14."),
        ("Use it, i.e. call it. Then", "Use it, i.e. call it."),
        ('He says "no." Then', 'He says "no."'),
        ("1. Compute! 2. Say", "1. Compute!"),
        ("no end", "no end"),
        ("A line\nanother", "A line"),
        (" \n", None),
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_concise_summary_is_the_first_sentence(text: str, first: str | None, size: int) -> None:
    assert parts(text, "concise", size) == ([] if first is None else [first])


@given(st.text(alphabet="ab.#*`1 \n", max_size=60), st.integers(1, 9))
def test_summary_loses_nothing_but_white_space(text: str, size: int) -> None:
    whole = parts(text, "detailed", max(len(text), 1))
    assert parts(text, "detailed", size) == whole
    assert "".join("".join(whole).split()) == "".join(text.split())
    assert all(part and part == part.strip() for part in whole)
    concise = parts(text, "concise", size)
    assert concise == parts(text, "concise", max(len(text), 1)) and len(concise) <= 1
