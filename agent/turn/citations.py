"""The citations in a text: GPT-OSS writes ``【cursor†L3-L5】`` (https://github.com/openai/gpt-oss)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tools.types import Source

_CITATION = re.compile(r"【(\d{1,9})†L(\d{1,9})[^】\n]{0,80}】")

FindSource = Callable[[int, int], Source | None]
"""Finds what a line of a browsed page refers to, by the page's cursor and the line's number."""


def citations(text: str, find_source: FindSource) -> list[dict[str, Any]]:
    """The ``url_citation`` annotations; positions in characters, the end exclusive."""
    return [
        {
            "type": "url_citation",
            "start_index": mark.start(),
            "end_index": mark.end(),
            "title": source.title,
            "url": source.url,
        }
        for mark in _CITATION.finditer(text)
        if (source := find_source(int(mark[1]), int(mark[2]))) is not None
    ]
