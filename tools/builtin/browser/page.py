"""A page in the form that gpt-oss was trained on: numbered lines, and links by number.

A link is written ``【0†text†host】`` (its number, its text, and its host if it leads elsewhere)::

    [1] On foxes (https://example.org/fox)
    **viewing lines [0 - 2] of 40**

    L0: # Foxes
    L1:
    L2: See 【0†their dens】 and 【1†cubs†example.com】.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urldefrag, urljoin, urlsplit

from tools.sanitize import strip_hidden
from tools.types import Source

LINE_CHARS = 100
"""Characters of a line; a longer one is wrapped."""
MAX_LINES = 20_000
MAX_PAGE_CHARS = LINE_CHARS * MAX_LINES
MAX_TITLE_CHARS = 500
TRUNCATION_NOTE = "[the rest of the page is left out]"
WRAP_CHUNK_CHARS = 50_000
"""Characters of a line that are wrapped at a time."""
VIEW_CHARS = 6000
"""Characters of one view if the model does not say how many lines it wants."""
MAX_VIEW_LINES, MAX_MATCHES, CONTEXT_LINES = 400, 50, 2

# A Markdown link or image. Linear in time: no part is tried again from each bracket that it
# contains, and all are bounded.
_LINK = re.compile(
    r"!?(?<!\\)\[((?:\\.|[^\[\]\\]){0,500})\]"
    r"\((?:<([^<>\n]{0,2000})>|([^()\s]{0,2000}(?:\([^()\s]{0,500}\)[^()\s]{0,500}){0,9}))"
    r"(?:\s\"[^\"]{0,500}\")?\)"
)


@dataclass(frozen=True, slots=True)
class Link:
    """A numbered link of a page."""

    url: str
    line: int = 0
    """The line at which the page is to be opened."""


@dataclass(frozen=True, slots=True)
class CitedSource:
    """The page that a list of pages, such as search results, speaks of from ``line`` on."""

    line: int
    url: str
    title: str


@dataclass(slots=True)
class Page:
    """A page that a conversation has seen; its position in the conversation is its cursor."""

    url: str
    title: str
    lines: list[str]
    links: list[Link] = field(default_factory=list)
    cited: list[CitedSource] = field(default_factory=list)
    """The sources of a page that only lists others."""
    wanted: str = ""
    """The model's query or path, in lower case: a page may show it again as a link."""

    def view(self, cursor: int, first: int = 0, count: int = -1) -> str:
        """Return ``count`` lines from ``first`` on, or as many as fit into VIEW_CHARS."""
        first = max(0, min(first, len(self.lines) - 1))
        if count > 0:
            last = min(first + min(count, MAX_VIEW_LINES), len(self.lines))
        else:
            last, size = first, 0
            while last < len(self.lines) and (size < VIEW_CHARS or last == first):
                size += len(self.lines[last]) + 6
                last += 1
        head = f"[{cursor}] {self.title or self.url} ({self.url})"
        lines = [head, f"**viewing lines [{first} - {last - 1}] of {len(self.lines) - 1}**", ""]
        lines += [f"L{number}: {self.lines[number]}" for number in range(first, last)]
        return "\n".join(lines)

    def source(self, line: int) -> Source | None:
        before = [source for source in self.cited if source.line <= line]
        if before:
            return Source(before[-1].url, before[-1].title)
        return Source(self.url, self.title or self.url) if self.url.startswith("http") else None

    @classmethod
    def load(cls, data: dict[str, Any]) -> Self:
        """Make a page from the result of ``asdict``; raises KeyError, TypeError."""
        links = [Link(**link) for link in data["links"]]
        cited = [CitedSource(**source) for source in data["cited"]]
        return cls(data["url"], data["title"], data["lines"], links, cited, data.get("wanted", ""))

    def links_to(self, url: str) -> bool:
        """Return whether the page names an address by itself; ``url`` has no fragment."""
        known = {urldefrag(each).url for each in (self.url, *(link.url for link in self.links))}
        return url in known and (
            url == self.url or (urlsplit(url).hostname or "") not in self.wanted
        )


def text_page(url: str, title: str, text: str, *, source: bool = False) -> Page:
    """Make a page from Markdown, in up to a second; ``source``: from markup, whose links are text."""
    links: list[Link] = []

    def number_link(match: re.Match[str]) -> str:
        words = re.sub(r"\\(.)", r"\1", match[1]).strip()
        try:
            address = urljoin(url, match[2] or match[3] or "")
            host = urlsplit(address).netloc
        except ValueError:  # brackets, or letters that stand for others
            address = host = ""
        if match[0].startswith("!"):
            return f"[image: {words}]" if words else ""
        if not address.startswith(("http://", "https://")):
            return words
        links.append(Link(address))
        where = "" if host == urlsplit(url).netloc else f"†{host}"
        return f"【{len(links) - 1}†{_plain(words)}{where}】"

    truncated = len(text) > MAX_PAGE_CHARS
    text = strip_hidden("\n".join(text[:MAX_PAGE_CHARS].splitlines()))
    if not source:
        # Such brackets in the page itself are not our marks.
        text = _LINK.sub(number_link, text.replace("【", "[").replace("】", "]"))
    lines = _wrap(text.splitlines())
    if truncated and lines[-1] != TRUNCATION_NOTE:
        lines.append(TRUNCATION_NOTE)
    return Page(url, _plain(strip_hidden(title[:MAX_TITLE_CHARS])), lines, links)


def results_page(query: str, results: Sequence[tuple[str, str, str]]) -> Page:
    page = Page(f"search: {_plain(query)}", f"Results for: {_plain(query)}", [""])
    for title, url, excerpt in results:
        try:
            host = urlsplit(url).netloc
        except ValueError:
            continue  # nothing that could be opened
        title = _plain(strip_hidden(title[:MAX_TITLE_CHARS])) or url
        page.cited.append(CitedSource(len(page.lines), url, title))
        page.lines.append(f"【{len(page.links)}†{title}†{host}】")
        page.links.append(Link(url))
        page.lines += [*_wrap(_plain(strip_hidden(excerpt)).splitlines()), ""]
    if not page.links:
        page.lines.append("No results.")
    return page


def matches_page(pattern: str, page: Page) -> Page:
    wanted = pattern.lower()
    numbers = [number for number, line in enumerate(page.lines) if wanted in line.lower()]
    result = Page(page.url, f"Find: {_plain(pattern)} in {page.title or page.url}", [""])
    for number in numbers[:MAX_MATCHES]:
        result.lines.append(f"# 【{len(result.links)}†match at L{number}】")
        result.links.append(Link(page.url, number))
        result.lines += page.lines[max(0, number - CONTEXT_LINES) : number + CONTEXT_LINES + 1]
        result.lines.append("")
    if len(numbers) > MAX_MATCHES:
        result.lines.append(f"[{len(numbers) - MAX_MATCHES} more matches]")
    if not numbers:
        result.lines.append("No matches.")
    return result


def _plain(text: str) -> str:
    return " ".join(text.replace("【", "[").replace("】", "]").replace("†", "+").split())


def _wrap(lines: Sequence[str]) -> list[str]:
    wrapped: list[str] = []
    for line in lines:
        if len(wrapped) > MAX_LINES:
            wrapped.append(TRUNCATION_NOTE)
            break
        if len(line) <= LINE_CHARS:
            wrapped.append(line.rstrip())
            continue
        # Wrapping takes the square of a line's length.
        for start in range(0, len(line), WRAP_CHUNK_CHARS):
            wrapped += textwrap.wrap(line[start : start + WRAP_CHUNK_CHARS], LINE_CHARS,
                                   break_long_words=len(line) > 20 * LINE_CHARS,
                                   break_on_hyphens=False)  # fmt: skip
    return wrapped or [""]
