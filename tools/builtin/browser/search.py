"""Search backends of the browser: a SearXNG, or a tool of an MCP server."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2

from agent.util import private_files
from tools.builtin.browser.page import Page, results_page, text_page
from tools.builtin_server import ToolError
from tools.types import Tool, ToolResult

SEARCH_SECONDS, MAX_ANSWER_BYTES = 20.0, 5_000_000
COUNT_ARGUMENTS = ("topn", "count", "limit", "max_results", "num_results", "n")
"""Names that search tools give to their argument for the number of results."""
_URL = re.compile(r"https?://[^\s<>\"'\])}]+")

CallTool = Callable[[Tool, dict[str, Any]], Awaitable[ToolResult]]
FindTool = Callable[[str], Tool | None]
"""Finds a tool by ``server.tool``."""


async def search_searxng(url: str, query: str, count: int) -> Page:
    """Search with a SearXNG (https://docs.searxng.org/dev/search_api.html); raises ToolError."""
    endpoint = url.rstrip("/").removesuffix("/search") + "/search"
    try:
        async with httpx2.AsyncClient(timeout=SEARCH_SECONDS, follow_redirects=True) as client:
            answer = await client.get(endpoint, params={"q": query, "format": "json"})
        if answer.status_code == 403:
            raise ToolError(
                "SearXNG does not answer in JSON; add json to search.formats in its settings"
            )
        answer.raise_for_status()
        results = answer.json()["results"] if len(answer.content) < MAX_ANSWER_BYTES else []
        return results_page(query, _parse_results(results)[:count])
    except httpx2.HTTPStatusError as error:
        why = f"HTTP {error.response.status_code}"
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        why = str(error) or type(error).__name__
    except (ValueError, KeyError, TypeError):
        why = "it gave no list of results"
    raise ToolError(f"the search at {private_files.redact_url(endpoint)} failed: {why}")


async def search_by_tool(name: str, find: FindTool, call: CallTool, query: str, count: int) -> Page:
    """Search with an MCP server's tool; a list of results in JSON becomes a page. Raises ToolError."""
    tool = find(name)
    if tool is None:
        raise ToolError(f"there is no tool {name} to search with")
    known = tool.parameters.get("properties", {})
    query_key = next((key for key in ("query", "q", "search", "text") if key in known), "query")
    counts = {key: count for key in COUNT_ARGUMENTS if key in known}
    result = await call(tool, {query_key: query, **dict(list(counts.items())[:1])})
    if result.failed:
        raise ToolError(f"{name} failed: {result.text[:500]}")
    try:
        results = _parse_results(_find_list(json.loads(result.text)))
        return results_page(query, results[:count])
    except (ValueError, KeyError, TypeError):
        text = _URL.sub(lambda match: f"[{match[0]}](<{match[0]}>)", result.text)
        return await asyncio.to_thread(text_page, f"search: {query}", f"Results for: {query}", text)


def _find_list(answer: Any) -> Any:
    if isinstance(answer, list):
        return answer
    if isinstance(answer, dict):
        for value in answer.values():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                return value
    raise TypeError


def _parse_results(value: Any) -> list[tuple[str, str, str]]:
    """Return title, address and excerpt of each result; raises TypeError, KeyError."""
    if not isinstance(value, list):
        raise TypeError
    results = []
    for item in value:
        url = str(item.get("url") or item["link"])
        excerpt = next((item[key] for key in ("content", "snippet", "description", "text")
                        if isinstance(item.get(key), str)), "")  # fmt: skip
        if url.startswith(("http://", "https://")):
            results.append((str(item.get("title") or url), url, excerpt[:1000]))
    return results
