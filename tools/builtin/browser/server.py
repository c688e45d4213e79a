"""``browser.search``, ``browser.open`` and ``browser.find``, as gpt-oss was trained on them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tools import private_files
from tools.builtin.base import HandError, conversation, flat_schema, folder_of, prune, used
from tools.builtin.browser.settings import BrowserSettings
from tools.sandbox import isolation as sandbox
from tools.sandbox.isolation import Isolation, Limits
from tools.types import Source, Tool

if TYPE_CHECKING:
    from tools.builtin.browser.page import Page
    from tools.builtin.browser.safe_fetch import Fetched
    from tools.builtin.browser.search import CallTool, FindTool, Search

EXTRACT = Path(__file__).with_name("extract.py")
EXTRACT_SECONDS = 30.0
EXTRACT_LIMITS = Limits(memory=3 << 30, cpu=60)
MAX_EXTRACT = 16_000_000
"""Bytes that what reads a page may answer; what it is made to answer by a page is not trusted."""
FOLDERS = 100
"""Conversations whose pages are kept; the oldest go first."""
MOST_RESULTS = 30


def _tool(name: str, description: str, required: list[str], **properties: Any) -> Tool:
    """gpt-oss itself is told of them in the words of its training; these are for other models."""
    schema = flat_schema(required, **properties)
    return Tool("browser", name, description, schema, f"browser.{name}", read_only=True)


SEARCH = _tool(
    "search", "Search the web.", ["query"], query="string", topn="number", source="string"
)
OPEN = _tool(
    "open",
    "Open a link by its number id on the page that cursor names (by default the last one), or an"
    " address as id; without id, move to the line loc of a page. Lines are cited as 【cursor†L3-L5】.",
    [],
    id=["number", "string"],
    cursor="number",
    loc="number",
    num_lines="number",
    view_source="boolean",
    source="string",
)
FIND = _tool("find", "Find a text in a page.", ["pattern"], pattern="string", cursor="number")


class Browser:
    """A hand. Every page that a conversation has seen keeps its number, its cursor."""

    name = "browser"
    short = "browser"

    def __init__(
        self,
        settings: BrowserSettings | None = None,
        *,
        work: Path | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        """``work``: where the pages of conversations are kept (None: a temporary folder).
        ``isolation``: None picks the best that works here; without one only plain text is read."""
        self.settings = settings or BrowserSettings()
        self._isolation = isolation
        self._work = work
        self._temporary: Path | None = None
        self._tools: tuple[FindTool, CallTool] | None = None
        searches = self.settings.searxng or self.settings.search
        self.tools: Sequence[Tool] = (SEARCH, OPEN, FIND) if searches else (OPEN, FIND)
        # No network by surprise: without a word of the operator it is offered by name only.
        self.default: Sequence[str] = [tool.name for tool in self.tools] if searches else ()

    def search_with(self, find: FindTool, call: CallTool) -> None:
        """The tools among which the search tool of the settings is."""
        self._tools = find, call

    def contained(self, name: str) -> bool:
        return True  # whoever names or configures it wants pages to be read

    def problem(self) -> str | None:
        return None

    def preview(self, name: str, arguments: dict[str, Any]) -> str | None:
        return None

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        if self._temporary is not None:
            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        # Imported when it is first used: other runs do not pay for it.
        await asyncio.to_thread(import_module, "tools.builtin.browser.search")
        await asyncio.to_thread(import_module, "tools.builtin.browser.safe_fetch")
        match name:
            case "search":
                return await self._search(**arguments)
            case "open":
                return await self._open(**arguments)
            case _:
                return await self._find(**arguments)

    def source(self, cursor: int, line: int) -> Source | None:
        """What a line of a page of this conversation tells of."""
        try:
            found = self._page(cursor).source(line)
        except HandError:
            return None
        return Source(*found) if found else None

    # --- the tools ---

    async def _search(self, query: str, topn: float = 10, source: str = "") -> str:
        if not query.strip():
            raise HandError("Error: the query is empty")
        most = max(1, min(int(topn), MOST_RESULTS))
        page = await self._searching()(query.strip(), most)
        return page.view(self._add(page))

    def _searching(self) -> Search:
        from tools.builtin.browser.search import SearXNG, ToolSearch

        if self.settings.searxng:
            return SearXNG(self.settings.searxng)
        if self.settings.search and self._tools:
            return ToolSearch(self.settings.search, *self._tools)
        raise HandError("Error: no search is configured; open an address instead")

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
            page = await self._fetch(_address(id.strip()), view_source)
            return page.view(self._add(page), first, count)
        at = self._last() if cursor < 0 else int(cursor)
        page = self._page(at)
        if int(id) < 0:
            if view_source and page.url.startswith("http"):
                page = await self._fetch(page.url, True)
                at = self._add(page)
            return page.view(at, first, count)
        if int(id) >= len(page.links):
            raise HandError(f"Error: the page [{at}] has no link {int(id)}")
        link = page.links[int(id)]
        if link.url == page.url and page.title.startswith("Find: "):
            shown = self._before(at, link.url)
            return self._page(shown).view(shown, max(link.line - 2, 0), count)
        page = await self._fetch(link.url, view_source)
        return page.view(self._add(page), first, count)

    async def _find(self, pattern: str, cursor: float = -1) -> str:
        from tools.builtin.browser.page import of_matches

        if not pattern.strip():
            raise HandError("Error: the pattern is empty")
        at = self._last() if cursor < 0 else int(cursor)
        page = self._page(at)
        if page.title.startswith("Find: "):
            page = self._page(self._before(at, page.url))
        found = of_matches(pattern, page)
        return found.view(self._add(found))

    # --- pages ---

    async def _fetch(self, url: str, view_source: bool) -> Page:
        from tools.builtin.browser.safe_fetch import Guard, fetch

        fetched = await fetch(url, Guard(self.settings.allow_private))
        if self._isolation is None:
            self._isolation = await asyncio.to_thread(sandbox.isolation)
        said = await _extracted(fetched, view_source, self._isolation)
        return await asyncio.to_thread(_understood, said, fetched.url, view_source)

    def _folder(self) -> Path:
        if self._work is None:
            self._work = self._temporary = Path(tempfile.mkdtemp(prefix="agent-browser-"))
        folder = folder_of(self._work, conversation.get())
        used(folder)
        return folder

    def _add(self, page: Page) -> int:
        """Its cursor."""
        folder = self._folder()
        if not folder.exists():
            private_files.folder(folder)
            prune(folder.parent, FOLDERS, [folder])
        cursor = self._last(-1) + 1
        (folder / f"{cursor}.json").write_text(json.dumps(page.dump()), encoding="utf-8")
        return cursor

    def _page(self, cursor: int) -> Page:
        from tools.builtin.browser.page import Page

        try:
            return Page.load(json.loads((self._folder() / f"{cursor}.json").read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            raise HandError(f"Error: there is no page [{cursor}]") from None

    def _last(self, none: int | None = None) -> int:
        """The newest page's cursor."""
        folder = self._folder()
        cursors = [int(one.stem) for one in folder.glob("*.json")] if folder.exists() else []
        if not cursors and none is None:
            raise HandError("Error: no page is open; search, or open an address")
        return max(cursors) if cursors else none or 0

    def _before(self, at: int, url: str) -> int:
        """The page of this address that was seen last before another."""
        for cursor in range(at - 1, -1, -1):
            page = self._page(cursor)
            if page.url == url and not page.title.startswith("Find: "):
                return cursor
        raise HandError(f"Error: there is no page of {url} any more")


def _address(text: str) -> str:
    if not re.match(r"[a-z][a-z0-9+.-]*://", text, re.IGNORECASE):
        text = f"https://{text}"
    if urlsplit(text).scheme.lower() not in ("http", "https"):
        raise HandError(f"Error: not an http address: {text}")
    return text


async def _extracted(fetched: Fetched, source: bool, way: Isolation) -> bytes:
    """What extract.py says of it; it is confined, and can be killed."""
    home = Path(tempfile.mkdtemp(prefix="agent-page-")).resolve()
    about: dict[str, object] = {
        "url": fetched.url,
        "kind": fetched.kind,
        "charset": fetched.charset,
    }
    about |= {"source": source, "confined": way.ok}
    try:
        process = await asyncio.create_subprocess_exec(
            *sandbox.command(way.name, EXTRACT, home, EXTRACT_LIMITS),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=sandbox.environment(home),
            cwd=home,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(EXTRACT_SECONDS):
                sent = json.dumps(about).encode() + b"\n" + fetched.data
                return await _answer(process, sent)
        except TimeoutError:
            raise HandError(f"Error: {fetched.url} took too long to read") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    finally:
        await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)


async def _answer(process: asyncio.subprocess.Process, sent: bytes) -> bytes:
    """All that it writes when it is sent this. Raises HandError where that is too much."""
    assert process.stdin is not None and process.stdout is not None

    async def send(stdin: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # it has ended before it read all
            stdin.write(sent)
            await stdin.drain()
        stdin.close()

    sending = asyncio.create_task(send(process.stdin))
    try:
        await process.stdout.readexactly(MAX_EXTRACT + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        sending.cancel()
    raise HandError("Error: there is too much text in it")


def _understood(said: bytes, url: str, source: bool) -> Page:
    """The page that extract.py tells of. Raises HandError."""
    from tools.builtin.browser.page import of_text

    try:
        found = json.loads(said)
        if "error" in found:
            raise HandError(f"Error: {url} cannot be read: {found['error']}")
        return of_text(url, str(found["title"]), str(found["text"]), source=source)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise HandError(f"Error: {url} cannot be read: its text could not be found in it") from None
