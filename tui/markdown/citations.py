"""Shows what an answer cites: each citation as a numbered link, and a list of the sources below."""

import re
from collections.abc import Sequence
from typing import Any

_MARKUP = re.compile(r"([\\`*_\[\]<>#|~!&])")


def link_citations(text: str, annotations: Sequence[dict[str, Any]]) -> str:
    """Return Markdown in which each ``url_citation`` is a link, followed by the sources."""
    citations = [a for a in annotations if a.get("type") == "url_citation" and a.get("url")]
    if not citations:
        return text
    titles = {str(a["url"]): str(a.get("title") or a["url"]) for a in citations}
    numbers = {url: number for number, url in enumerate(titles, 1)}
    for citation in sorted(citations, key=lambda a: a["start_index"], reverse=True):
        url = str(citation["url"])
        link = f"[\\[{numbers[url]}\\]]({_link_target(url)})"
        text = text[: citation["start_index"]] + link + text[citation["end_index"] :]
    sources = "\n".join(
        f"{number}. [{_escape(titles[url])}]({_link_target(url)})"
        for url, number in numbers.items()
    )
    return f"{text.rstrip()}\n\n{sources}"


def _link_target(url: str) -> str:
    return "<" + "".join(c for c in url if c not in "<>\n\r") + ">"


def _escape(title: str) -> str:
    return _MARKUP.sub(r"\\\1", " ".join(title.split()))
