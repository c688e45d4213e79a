"""What an answer cites: its marks as numbers, and a list of the sources below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_MARKUP = re.compile(r"([\\`*_\[\]<>#|~!&])")


def cited(text: str, annotations: Sequence[dict[str, Any]]) -> str:
    """Markdown with each citation as a link to what it cites; the same text where there is none."""
    found = [one for one in annotations if one.get("type") == "url_citation" and one.get("url")]
    if not found:
        return text
    titles = {str(one["url"]): str(one.get("title") or one["url"]) for one in found}
    numbers = {url: number for number, url in enumerate(titles, 1)}
    for one in sorted(found, key=lambda one: one["start_index"], reverse=True):
        url = str(one["url"])
        link = f"[\\[{numbers[url]}\\]]({_address(url)})"
        text = text[: one["start_index"]] + link + text[one["end_index"] :]
    sources = "\n".join(
        f"{number}. [{_plain(titles[url])}]({_address(url)})" for url, number in numbers.items()
    )
    return f"{text.rstrip()}\n\n{sources}"


def _address(url: str) -> str:
    return "<" + "".join(c for c in url if c not in "<>\n\r") + ">"


def _plain(title: str) -> str:
    """Text in which nothing is Markdown."""
    return _MARKUP.sub(r"\\\1", " ".join(title.split()))
