"""Where searches are answered: a SearXNG, or a tool of an MCP server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import httpx2

from tools import private_files
from tools.builtin.base import HandError
from tools.builtin.browser.page import Page, of_results, of_text
from tools.types import Tool, ToolResult

SECONDS = 20.0
MAX_BYTES = 5_000_000
CALLED = ("topn", "count", "limit", "max_results", "num_results", "n")
"""What tools name the number of results."""
_ADDRESS = re.compile(r"https?://[^\s<>\"'\])}]+")

CallTool = Callable[[Tool, dict[str, Any]], Awaitable[ToolResult]]
FindTool = Callable[[str], Tool | None]
"""By ``server.tool``."""


class Search(Protocol):
    async def __call__(self, query: str, most: int) -> Page:
        """Raises HandError."""
        ...


class SearXNG:
    """Asked in JSON. The operator named it, so its address may be a private one."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/").removesuffix("/search") + "/search"

    async def __call__(self, query: str, most: int) -> Page:
        try:
            async with httpx2.AsyncClient(timeout=SECONDS, follow_redirects=True) as client:
                answer = await client.get(self._url, params={"q": query, "format": "json"})
            if answer.status_code == 403:
                raise HandError(
                    "Error: the SearXNG answers in no JSON; its settings need json in search.formats"
                )
            answer.raise_for_status()
            results = answer.json()["results"] if len(answer.content) < MAX_BYTES else []
            return of_results(query, _results(results)[:most])
        except httpx2.HTTPStatusError as error:
            raise self._failed(f"HTTP {error.response.status_code}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._failed(str(error) or type(error).__name__) from None
        except (ValueError, KeyError, TypeError):
            raise self._failed("it gave no list of results") from None

    def _failed(self, why: str) -> HandError:
        return HandError(f"Error: the search at {private_files.address(self._url)} failed: {why}")


class ToolSearch:
    """Whatever the tool says is a page; a list of results in JSON is shown as one."""

    def __init__(self, name: str, find: FindTool, call: CallTool) -> None:
        self._name, self._find, self._call = name, find, call

    async def __call__(self, query: str, most: int) -> Page:
        tool = self._find(self._name)
        if tool is None:
            raise HandError(f"Error: there is no tool {self._name} to search with")
        known = tool.parameters.get("properties", {})
        words = next((key for key in ("query", "q", "search", "text") if key in known), "query")
        number = {key: most for key in CALLED if key in known}
        result = await self._call(tool, {words: query, **dict(list(number.items())[:1])})
        if result.failure != "none":
            raise HandError(f"Error: {self._name} failed: {result.text[:500]}")
        try:
            return of_results(query, _results(_listed(json.loads(result.text)))[:most])
        except (ValueError, KeyError, TypeError):
            text = _ADDRESS.sub(lambda found: f"[{found[0]}](<{found[0]}>)", result.text)
            return await asyncio.to_thread(
                of_text, f"search: {query}", f"Results for: {query}", text
            )


def _listed(answer: Any) -> Any:
    """The list of results in what a tool answered. Raises TypeError."""
    if isinstance(answer, list):
        return answer
    if isinstance(answer, dict):
        for value in answer.values():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                return value
    raise TypeError


def _results(found: Any) -> list[tuple[str, str, str]]:
    """Title, address and what is said there. Raises TypeError, KeyError."""
    if not isinstance(found, list):
        raise TypeError
    results = []
    for one in found:
        url = str(one.get("url") or one["link"])
        said = next((one[key] for key in ("content", "snippet", "description", "text")
                     if isinstance(one.get(key), str)), "")  # fmt: skip
        if url.startswith(("http://", "https://")):
            results.append((str(one.get("title") or url), url, said[:1000]))
    return results
