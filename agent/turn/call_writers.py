"""Calls as the items of OpenAI's own tools, for requests that have those: code_interpreter,
web_search, and an MCP server's calls that wait for approval.

Each takes what an MCP call's writer takes (`items.McpCallWriter`) and shows it in its own way.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from agent import events as ev
from agent.turn.output import McpCallWriter, Output, new_id

INTERRUPTED = -32002
"""The code of a call that was cut off."""


@dataclass(frozen=True, slots=True)
class Hosted:
    """Which of OpenAI's tools a request has, that hands of ours stand for."""

    code: bool = False
    search: bool = False
    sources: bool = False
    """A web_search_call shows what a search found."""
    held: frozenset[tuple[str, str]] = frozenset()
    """Servers' tools whose calls wait for the client's word."""

    def shows_code(self, server: str, raw_recipient: str | None) -> bool:
        """Only what is sent to `python` itself: that is OpenAI's tool, the others are the server's."""
        return self.code and server == "code_interpreter" and raw_recipient == "python"

    def shows_search(self, server: str) -> bool:
        return self.search and server == "browser"


@dataclass(frozen=True, slots=True)
class Approved:
    """A call that waited, and may run now."""

    request: str
    """The id of the mcp_approval_request."""
    server: str
    name: str
    arguments: str


class Writer(Protocol):
    """A call that this process runs: its arguments, then completed or failed, once."""

    id: str
    server: str
    name: str
    arguments: str

    def delta(self, text: str) -> None:
        """More of the arguments, as JSON."""
        ...

    def arguments_done(self, arguments: str) -> None: ...

    def begins(self) -> None:
        """It is run now; not every call is."""
        ...

    def completed(self, output: str) -> None: ...

    def failed(self, error: ev.McpError) -> None: ...


class CodeWriter:
    """Code streams as itself; what the model wrote as JSON is shown once it is whole."""

    def __init__(self, output: Output, name: str, container: str) -> None:
        """``container``: whose variables the code sees."""
        self._output, self._container = output, container
        self.server, self.name, self.arguments = "code_interpreter", name, "{}"
        self.id, self._code = new_id("ci"), ""
        self._index = output.open(self._item("in_progress"))
        self._at: dict[str, Any] = {"item_id": self.id, "output_index": self._index}
        output.emit(ev.CodeInterpreterCallInProgress(**self._at))

    def _item(
        self,
        status: Literal["in_progress", "completed", "incomplete", "failed"],
        logs: str | None = None,
    ) -> ev.CodeInterpreterCallItem:
        return ev.CodeInterpreterCallItem(
            id=self.id,
            container_id=self._container,
            code=self._code,
            outputs=None if logs is None else [{"type": "logs", "logs": logs}],
            status=status,
        )

    def delta(self, text: str) -> None:
        """What is JSON says nothing yet."""

    def code(self, text: str) -> None:
        self._code += text
        self._output.emit(ev.CodeInterpreterCallCodeDelta(**self._at, delta=text))

    def arguments_done(self, arguments: str) -> None:
        self.arguments = arguments
        code = json.loads(arguments).get("code")
        if not self._code and isinstance(code, str) and code:
            self.code(code)
        self._output.emit(ev.CodeInterpreterCallCodeDone(**self._at, code=self._code))

    def begins(self) -> None:
        self._output.emit(ev.CodeInterpreterCallInterpreting(**self._at))

    def completed(self, output: str) -> None:
        self._output.emit(ev.CodeInterpreterCallCompleted(**self._at))
        self._output.close(self._index, self._item("completed", output))

    def failed(self, error: ev.McpError) -> None:
        match error:
            case ev.McpToolExecutionError(content=blocks):  # it ran, and says so itself
                self.completed("\n".join(str(block.get("text", "")) for block in blocks))
            case ev.McpProtocolError(code=code, message=message):
                status: Literal["incomplete", "failed"] = (
                    "incomplete" if code == INTERRUPTED else "failed"
                )
                self._output.close(self._index, self._item(status, message))
            case ev.HttpError(message=message):
                self._output.close(self._index, self._item("failed", message))


_CURSOR = re.compile(r"\[(\d{1,9})\] ")
_RESULT = re.compile(r"^L(\d{1,9}): 【\d+†", re.MULTILINE)
"""How a page of the browser begins, and the lines of a search's page that name what was found."""


class SearchWriter:
    """The item opens once it is known what is looked for."""

    def __init__(self, output: Output, name: str, *, sources: bool = False) -> None:
        """``sources``: what a search found is shown."""
        self._output, self.server, self.name = output, "browser", name
        self.id, self.arguments, self._sources = new_id("ws"), "{}", sources

    def delta(self, text: str) -> None:
        """Nothing is shown of it."""

    def arguments_done(self, arguments: str) -> None:
        self.arguments = arguments
        self._action = self._done(json.loads(arguments))
        self._index = self._output.open(ev.WebSearchCallItem(id=self.id, action=self._action))
        self._at: dict[str, Any] = {"item_id": self.id, "output_index": self._index}
        self._output.emit(ev.WebSearchCallInProgress(**self._at))

    def begins(self) -> None:
        self._output.emit(ev.WebSearchCallSearching(**self._at))

    def _url(self, cursor: object, line: int = 0) -> str | None:
        source = self._output.source
        page = source(cursor, line) if source is not None and isinstance(cursor, int) else None
        return page.url if page is not None else None

    def _done(self, asked: dict[str, Any]) -> dict[str, Any]:
        url = self._url(asked.get("cursor"))
        match self.name:
            case "search":
                query = str(asked.get("query", ""))
                return {"type": "search", "query": query, "queries": [query]}
            case "find":
                pattern = str(asked.get("pattern", ""))
                return {"type": "find_in_page", "pattern": pattern, "url": url or ""}
            case _:
                given = asked.get("id")
                if isinstance(given, str) and urlsplit(given).scheme in ("http", "https"):
                    url = given
                return {"type": "open_page", "url": url}

    def completed(self, output: str) -> None:
        if shown := _CURSOR.match(output):
            self._found(int(shown[1]), output)
        self._output.emit(ev.WebSearchCallCompleted(**self._at))
        self._close("completed")

    def _found(self, cursor: int, output: str) -> None:
        """What the page that is shown now tells of: where it lies, or what a search found."""
        if self._action["type"] != "search":
            self._action |= {"url": self._url(cursor) or self._action["url"]}
        elif self._sources:
            lines = (int(line) for line in _RESULT.findall(output))
            found = dict.fromkeys(url for line in lines if (url := self._url(cursor, line)))
            self._action |= {"sources": [{"type": "url", "url": url} for url in found]}

    def failed(self, error: ev.McpError) -> None:
        self._close("failed")

    def _close(self, status: Literal["completed", "failed"]) -> None:
        item = ev.WebSearchCallItem(id=self.id, action=self._action, status=status)
        self._output.close(self._index, item)


class HeldWriter:
    """Nothing is shown before it is known whether the client is asked."""

    def __init__(self, output: Output, server: str, name: str) -> None:
        self._output, self.server, self.name = output, server, name
        self.id, self.arguments, self.asked = new_id("mcpr"), "{}", False
        self._call: McpCallWriter | None = None

    def delta(self, text: str) -> None:
        """Nothing is shown of it."""

    def ask(self, arguments: str) -> None:
        """The response will end with the question; the next request answers it."""
        self.asked, self.arguments = True, arguments
        item = ev.McpApprovalRequestItem(
            id=self.id, server_label=self.server, name=self.name, arguments=arguments
        )
        self._output.close(self._output.open(item), item)

    def arguments_done(self, arguments: str) -> None:
        """It is not asked: the call fails by itself."""
        self.arguments = arguments
        self._call = McpCallWriter(self._output, self.server, self.name)
        self._call.delta(arguments)
        self._call.arguments_done(arguments)

    def begins(self) -> None:
        """It has begun when it is shown."""

    def completed(self, output: str) -> None:
        assert self._call is not None
        self._call.completed(output)

    def failed(self, error: ev.McpError) -> None:
        assert self._call is not None
        self._call.failed(error)
