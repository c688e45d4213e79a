"""A page as the model sees it: numbered lines, and links by number."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

WIDTH = 100
"""Characters of a line; what is longer goes on in the next."""
MAX_LINES = 20_000
MAX_TEXT = WIDTH * MAX_LINES
"""Characters of a page."""
MAX_TITLE = 500
LEFT_OUT = "[the rest of the page is left out]"
LONG = 50_000
"""Characters of a line that are wrapped at a time."""
VIEW = 6000
"""Characters of one view, where the model does not say how many lines."""
VIEW_LINES = 400
MATCHES = 50
AROUND = 2
"""Lines that are shown before and after a match."""

# No part of it is tried again from every bracket that it contains, and each is bounded.
_LINK = re.compile(
    r"!?(?<!\\)\[((?:\\.|[^\[\]\\]){0,500})\]"
    r"\((?:<([^<>\n]{0,2000})>|([^()\s]{0,2000}(?:\([^()\s]{0,500}\)[^()\s]{0,500}){0,9}))"
    r"(?:\s\"[^\"]{0,500}\")?\)"
)


@dataclass(frozen=True, slots=True)
class Link:
    url: str
    line: int = 0
    """Where the page is to be shown."""


@dataclass(frozen=True, slots=True)
class Cited:
    """From this line on, the page tells of that one."""

    line: int
    url: str
    title: str


@dataclass(slots=True)
class Page:
    url: str
    title: str
    lines: list[str]
    links: list[Link] = field(default_factory=list)
    cited: list[Cited] = field(default_factory=list)
    """Of a page that only lists others: what each part of it speaks of."""

    def view(self, cursor: int, first: int = 0, count: int = -1) -> str:
        first = max(0, min(first, len(self.lines) - 1))
        if count > 0:
            last = min(first + min(count, VIEW_LINES), len(self.lines))
        else:
            last, size = first, 0
            while last < len(self.lines) and (size < VIEW or last == first):
                size += len(self.lines[last]) + 6
                last += 1
        shown = [f"L{number}: {self.lines[number]}" for number in range(first, last)]
        head = f"[{cursor}] {self.title or self.url} ({self.url})"
        return "\n".join(
            [head, f"**viewing lines [{first} - {last - 1}] of {len(self.lines) - 1}**", "", *shown]
        )

    def source(self, line: int) -> tuple[str, str] | None:
        """Address and title of what a citation of this line names."""
        told = [one for one in self.cited if one.line <= line]
        if told:
            return told[-1].url, told[-1].title
        return (self.url, self.title or self.url) if self.url.startswith("http") else None

    def dump(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def load(cls, kept: dict[str, Any]) -> Page:
        links = [Link(**one) for one in kept["links"]]
        cited = [Cited(**one) for one in kept["cited"]]
        return cls(kept["url"], kept["title"], kept["lines"], links, cited)


def of_text(url: str, title: str, text: str, *, source: bool = False) -> Page:
    """A document; ``source``: its markup, in which links are only text. Takes up to a second of
    a large one: not for the event loop."""
    links: list[Link] = []

    def numbered(match: re.Match[str]) -> str:
        words = re.sub(r"\\(.)", r"\1", match[1]).strip()
        address = urljoin(url, match[2] or match[3] or "")
        if match[0].startswith("!"):
            return f"[image: {words}]" if words else ""
        if not address.startswith(("http://", "https://")):
            return words
        links.append(Link(address))
        host = urlsplit(address).netloc
        where = "" if host == urlsplit(url).netloc else f"†{host}"
        return f"【{len(links) - 1}†{_plain(words)}{where}】"

    cut = len(text) > MAX_TEXT
    text = clean(text[:MAX_TEXT])
    if not source:
        # What stands in such brackets in the page is none of our marks.
        text = _LINK.sub(numbered, text.replace("【", "[").replace("】", "]"))
    lines = _wrapped(text.splitlines())
    if cut and lines[-1] != LEFT_OUT:
        lines.append(LEFT_OUT)
    return Page(url, _plain(clean(title[:MAX_TITLE])), lines, links)


def of_results(query: str, results: Sequence[tuple[str, str, str]]) -> Page:
    """Of a search: title, address, what is said there."""
    page = Page(f"search: {_plain(query)}", f"Results for: {_plain(query)}", [""])
    for title, url, said in results:
        title = _plain(clean(title[:MAX_TITLE])) or url
        page.cited.append(Cited(len(page.lines), url, title))
        page.lines.append(f"【{len(page.links)}†{title}†{urlsplit(url).netloc}】")
        page.links.append(Link(url))
        page.lines += [*_wrapped(_plain(clean(said)).splitlines()), ""]
    if not results:
        page.lines.append("No results.")
    return page


def of_matches(pattern: str, page: Page) -> Page:
    """Where a text stands in a page; upper and lower case are one."""
    wanted = pattern.lower()
    at = [number for number, line in enumerate(page.lines) if wanted in line.lower()]
    found = Page(page.url, f"Find: {_plain(pattern)} in {page.title or page.url}", [""])
    for number in at[:MATCHES]:
        found.lines.append(f"# 【{len(found.links)}†match at L{number}】")
        found.links.append(Link(page.url, number))
        found.lines += page.lines[max(0, number - AROUND) : number + AROUND + 1]
        found.lines.append("")
    if len(at) > MATCHES:
        found.lines.append(f"[{len(at) - MATCHES} more matches]")
    if not at:
        found.lines.append("No matches.")
    return found


def clean(text: str) -> str:
    """Without what hides or reorders what a person would see."""
    hidden = {"Cc", "Cf", "Cs", "Co"}
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in hidden)


def _plain(text: str) -> str:
    return " ".join(text.replace("【", "[").replace("】", "]").replace("†", "+").split())


def _wrapped(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if len(found) > MAX_LINES:
            found.append(LEFT_OUT)
            break
        if len(line) <= WIDTH:
            found.append(line.rstrip())
            continue
        for start in range(0, len(line), LONG):  # wrapping takes the square of a line's length
            found += textwrap.wrap(line[start : start + LONG], WIDTH,
                                   break_long_words=len(line) > 20 * WIDTH,
                                   break_on_hyphens=False)  # fmt: skip
    return found or [""]
