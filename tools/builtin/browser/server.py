"""The built-in server ``browser``: ``search``, ``open`` and ``find``, as gpt-oss knows them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urlsplit

from agent.util import private_files
from tools.builtin.browser.extraction import MAX_EXTRACT_BYTES, ExtractionError, run_extract
from tools.builtin.browser.settings import BrowserSettings
from tools.builtin.conversation_folders import ConversationFolders
from tools.builtin_server import BuiltinServer, ToolError, conversation_id, object_schema
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation
from tools.types import Access, Label, Source, Tool

if TYPE_CHECKING:
    from tools.builtin.browser.page import Page
    from tools.builtin.browser.search import CallTool, FindTool

MAX_RESULTS = 30
NO_SEARCH = "no search is configured; open an address instead"


def _tool(name: str, description: str, required: list[str], **properties: Any) -> Tool:
    """Define a tool; gpt-oss gets other descriptions, those of its training."""
    schema = object_schema(required, **properties)
    labels = frozenset[Label](("untrusted", "sends"))
    return Tool("browser", name, description, schema, f"browser.{name}", True, labels=labels)


SEARCH_TOOL = _tool(
    "search", "Search the web.", ["query"], query="string", topn="number", source="string"
)
OPEN_TOOL = _tool(
    "open",
    "Open a link by its number id on the page that cursor names (by default the last one), or an"
    " address as id; without id, move to the line loc of a page. Lines are cited as 【cursor†L3-L5】.",
    [], id=["number", "string"], cursor="number", loc="number", num_lines="number",
    view_source="boolean", source="string",
)  # fmt: skip
FIND_TOOL = _tool("find", "Find a text in a page.", ["pattern"], pattern="string", cursor="number")


class BrowserServer(BuiltinServer):
    """The server ``browser``. Each page that a conversation has seen has a number, its cursor."""

    name = "browser"
    alias = "browser"
    knows_destinations = True

    def __init__(
        self,
        settings: BrowserSettings | None = None,
        *,
        work_folder: Path | None = None,
        isolation: Isolation | None = None,
        max_extract_bytes: int = MAX_EXTRACT_BYTES,
    ) -> None:
        """``work_folder``: of conversations' pages (None: a temporary one). ``isolation``: None: the
        best that works; without one only plain text is read. ``max_extract_bytes``: of a page."""
        self.settings = settings or BrowserSettings()
        self._isolation, self._max_bytes = isolation, max_extract_bytes
        self._folders = ConversationFolders(work_folder)
        self.search_tools: tuple[FindTool, CallTool] | None = None
        searches = self.settings.searxng or self.settings.search
        self.tools: Sequence[Tool] = (*([SEARCH_TOOL] if searches else []), OPEN_TOOL, FIND_TOOL)
        # No network by surprise: unless the operator configured a search, it is offered by name only.
        self.default_tools: Sequence[str] = [tool.name for tool in self.tools] if searches else ()

    def why_missing(self, name: str) -> str | None:
        return NO_SEARCH if name == "search" and SEARCH_TOOL not in self.tools else None

    def is_safe(self, name: str) -> bool:
        """Return True: who selects or configures the server wants pages to be read."""
        return True

    def access(self, offered: Collection[str]) -> Access:
        return Access(reach="public web pages; the address that is opened is sent there")

    def rule_verbs(self, tool: Tool) -> Sequence[str]:
        return ("open",)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        # Imported when it is first used: other runs do not pay for it.
        await asyncio.to_thread(import_module, "tools.builtin.browser.search")
        await asyncio.to_thread(import_module, "tools.safe_fetch")
        calls: dict[str, Callable[..., Awaitable[str]]]
        calls = {"search": self._search, "open": self._open, "find": self._find}
        return await calls[name](**arguments)

    def source(self, cursor: int, line: int) -> Source | None:
        try:
            return self._page(cursor).source(line)
        except ToolError:
            return None

    def destination(self, name: str, arguments: dict[str, Any]) -> str | None:
        """The host of an address that this conversation has not shown; None: it has, or opens none."""
        id_, cursor = arguments.get("id"), arguments.get("cursor", -1)
        if name != "open":
            return None
        try:
            if isinstance(id_, str) and not re.fullmatch(r"-?\d+", id_.strip()):
                url = _complete_url(id_.strip())
            else:
                page = self._page(self._last_cursor() if cursor < 0 else int(cursor))
                url = page.url if id_ is None or int(id_) < 0 else page.links[int(id_)].url
            return None if self._is_linked(url) else urlsplit(url).hostname
        except (ToolError, ValueError, TypeError, IndexError):
            return None

    def _is_linked(self, url: str) -> bool:
        pages = (self._page(cursor) for cursor in range(self._last_cursor(-1) + 1))
        return any(page.links_to(urldefrag(url).url) for page in pages)

    # --- the tools ---

    async def _search(self, query: str, topn: float = 10, source: str = "") -> str:
        if not query.strip():
            raise ToolError("the query is empty")
        page = await self._results(query.strip(), max(1, min(int(topn), MAX_RESULTS)))
        page.wanted = _decoded(query)
        return page.view(self._add(page))

    async def _results(self, query: str, count: int) -> Page:
        from tools.builtin.browser.search import search_by_tool, search_searxng

        if self.settings.searxng:
            return await search_searxng(self.settings.searxng, query, count)
        if self.settings.search and self.search_tools:
            return await search_by_tool(self.settings.search, *self.search_tools, query, count)
        raise ToolError(NO_SEARCH)

    async def _open(
        self,
        id: float | str = -1,
        cursor: float = -1,
        loc: float = -1,
        num_lines: float = -1,
        view_source: bool = False,
        source: str = "",
    ) -> str:
        first, count = max(int(loc), 0), int(num_lines)
        if isinstance(id, str) and not re.fullmatch(r"-?\d+", id.strip()):
            page = await self._fetch(_complete_url(id.strip()), view_source)
            return page.view(self._add(page), first, count)
        at = self._last_cursor() if cursor < 0 else int(cursor)
        page = self._page(at)
        if int(id) < 0:
            if view_source and page.url.startswith("http"):
                page = await self._fetch(page.url, True)
                at = self._add(page)
            return page.view(at, first, count)
        if int(id) >= len(page.links):
            raise ToolError(f"the page [{at}] has no link {int(id)}")
        link = page.links[int(id)]
        if link.url == page.url and page.title.startswith("Find: "):
            earlier = self._page_before(at, link.url)
            return self._page(earlier).view(earlier, max(link.line - 2, 0), count)
        page = await self._fetch(link.url, view_source)
        return page.view(self._add(page), first, count)

    async def _find(self, pattern: str, cursor: float = -1) -> str:
        from tools.builtin.browser.page import matches_page

        if not pattern.strip():
            raise ToolError("the pattern is empty")
        at = self._last_cursor() if cursor < 0 else int(cursor)
        page = self._page(at)
        if page.title.startswith("Find: "):
            page = self._page(self._page_before(at, page.url))
        matches = matches_page(pattern, page)
        return matches.view(self._add(matches))

    # --- pages ---

    async def _fetch(self, url: str, view_source: bool) -> Page:
        from tools.safe_fetch import GuardedTransport, fetch

        # A linked address says nothing of the model's, so it may lead anywhere.
        stays = not self._is_linked(url)
        fetched = await fetch(url, GuardedTransport(self.settings.allow_private), stays=stays)
        isolation = self._isolation
        if isolation is None:
            isolation = await asyncio.to_thread(sandbox.best_isolation)
        about: dict[str, object] = {"url": fetched.url, "kind": fetched.kind}
        about |= {"charset": fetched.charset, "source": view_source}
        try:
            answer = await run_extract(about, fetched.data, isolation, max_bytes=self._max_bytes)
        except ExtractionError as error:
            raise ToolError(f"{fetched.url} cannot be read: {error}") from None
        page = await asyncio.to_thread(_parse_answer, answer, fetched.url, view_source)
        page.wanted = _decoded(url.removeprefix(f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"))
        return page

    def _folder(self) -> Path:
        return self._folders.find(conversation_id.get())

    def _add(self, page: Page) -> int:
        folder = self._folder()
        if not folder.exists():
            private_files.make_folder(folder)
            self._folders.prune([folder])
        cursor = self._last_cursor(-1) + 1
        private_files.write_text(folder / f"{cursor}.json", json.dumps(asdict(page)))
        return cursor

    def _page(self, cursor: int) -> Page:
        # Imported here: listing the tools needs no page.
        from tools.builtin.browser.page import Page

        try:
            return Page.load(json.loads((self._folder() / f"{cursor}.json").read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            raise ToolError(f"there is no page [{cursor}]") from None

    def _last_cursor(self, default: int | None = None) -> int:
        """Return the newest page's cursor; without pages the default, or raises ToolError."""
        folder = self._folder()
        cursors = [int(path.stem) for path in folder.glob("*.json")] if folder.exists() else []
        if not cursors and default is None:
            raise ToolError("no page is open; search, or open an address")
        return max(cursors) if cursors else default or 0

    def _page_before(self, at: int, url: str) -> int:
        """Return the cursor of the last page of this address before another page."""
        for cursor in range(at - 1, -1, -1):
            page = self._page(cursor)
            if page.url == url and not page.title.startswith("Find: "):
                return cursor
        raise ToolError(f"there is no page of {url} any more")


def _complete_url(text: str) -> str:
    """Add a missing scheme; raises ToolError for another than http and https."""
    if not re.match(r"[a-z][a-z0-9+.-]*://", text, re.IGNORECASE):
        text = f"https://{text}"
    try:
        scheme = urlsplit(text).scheme.lower()
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https"):
        raise ToolError(f"not an http address: {text}")
    return text


def _decoded(text: str) -> str:
    """Return a text in lower case without %XX, however often it was encoded."""
    while (decoded := unquote(text)) != text:
        text = decoded
    return text.lower()


def _parse_answer(answer: bytes, url: str, source: bool) -> Page:
    from tools.builtin.browser.page import text_page

    try:
        result = json.loads(answer)
        if "error" in result:
            raise ToolError(f"{url} cannot be read: {result['error']}")
        return text_page(url, str(result["title"]), str(result["text"]), source=source)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ToolError(f"{url} cannot be read: its text could not be found in it") from None
