"""A text is searched without regard to case, also where a character is longer without it."""

from itertools import pairwise

import pytest

from tui.util.text_search import find_folded


@pytest.mark.parametrize(
    ("text", "query", "hits"),
    [
        ("One fox, two FOXES", "fox", ["fox", "FOX"]),
        ("Straße und Fuß: hier", "hier", ["hier"]),
        ("Straße und STRASSE", "strasse", ["Straße", "STRASSE"]),
        ("Fuß", "s", ["ß"]),
        ("ßß", "ss", ["ß", "ß"]),
        ("ßß", "sss", ["ßß"]),
        ("İstanbul, İzmir", "zmir", ["zmir"]),
        ("İİ", "i\u0307", ["İ", "İ"]),
        ("aaaa", "aa", ["aa", "aa"]),
        ("fox", "hare", []),
        ("fox", "", []),
    ],
)
def test_find_folded_place_is_that_in_the_text(text: str, query: str, hits: list[str]) -> None:
    spans = list(find_folded(text, query))
    assert [text[start:end] for start, end in spans] == hits
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
