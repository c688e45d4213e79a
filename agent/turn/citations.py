"""What a text cites: gpt-oss names a page that it browsed by ``【cursor†L3-L5】``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tools.types import Source

_CITATION = re.compile(r"【(\d{1,9})†L(\d{1,9})[^】\n]{0,80}】")

FindSource = Callable[[int, int], Source | None]
"""What a line of the page that a cursor names tells of."""


def citations(text: str, find: FindSource) -> list[dict[str, Any]]:
    """The ``url_citation`` annotations of a whole text: where each mark stands (in characters, the
    end exclusive) and what it names. A mark that names no page is only text."""
    return [
        {
            "type": "url_citation",
            "start_index": mark.start(),
            "end_index": mark.end(),
            "title": source.title,
            "url": source.url,
        }
        for mark in _CITATION.finditer(text)
        if (source := find(int(mark[1]), int(mark[2]))) is not None
    ]
