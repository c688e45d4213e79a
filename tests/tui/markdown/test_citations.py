"""Citations of an answer as links, with a list of the sources."""

from tui.markdown.citations import link_citations


def test_link_citations_marks_become_links_and_sources() -> None:
    text, mark = "So it is【1†L2】, and so【1†L4】.", "【1†L2】"
    at = [text.index(mark), text.rindex("【")]
    citations = [
        {"type": "url_citation", "start_index": start, "end_index": start + len(mark),
         "title": "A [bold] title", "url": "https://example.org/a"}
        for start in at
    ]  # fmt: skip
    link = r"[\[1\]](<https://example.org/a>)"
    source = r"1. [A \[bold\] title](<https://example.org/a>)"
    assert link_citations(text, citations) == f"So it is{link}, and so{link}.\n\n{source}"
    assert link_citations(text, []) == text
