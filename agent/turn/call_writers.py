"""The writers of tool calls, which become the items that the client knows: ``function_call`` and
``custom_tool_call``, which end the turn, where it runs them; else ``mcp_call``, or for hosted tools
``code_interpreter_call`` and ``web_search_call``."""

import json
import logging
import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic_core import from_json

from agent import events as ev
from agent.formats.protocol import FunctionTool
from agent.formats.tool_arguments import repair_arguments
from agent.turn.output import ItemWriter, Output
from agent.util.ids import new_id
from tools.types import Tool

log = logging.getLogger(__name__)

_WRAPPED_INPUT = re.compile(r'\s*\{\s*"input"\s*:')
INTERRUPTED_CODE = -32002
"""JSON-RPC error code of a call that was cut off."""


class CallWriter:
    """Writes a call: its arguments, then its end, which is ``completed`` or ``failed`` where this
    process runs it. A method that a writer does not override emits no event."""

    id: str
    server: str
    name: str
    arguments: str
    runs_on_client = False
    """The turn ends with it: the client runs it, or has to approve it first."""

    def delta(self, text: str) -> None:
        """Add to the arguments, a JSON text."""

    def arguments_done(self, arguments: str) -> None:
        """End the arguments; ``arguments``: all of them, as valid JSON."""
        self.arguments = arguments

    def running(self) -> None:
        """The call runs now; not every call gets that far."""

    def completed(self, output: str) -> None:
        """End the item with the tool's result."""

    def failed(self, error: ev.McpError) -> None:
        """End the item with an error."""


class FunctionCallWriter(ItemWriter, CallWriter):
    """Writes a call of a function that the client runs."""

    runs_on_client = True

    def __init__(self, output: Output, function: FunctionTool) -> None:
        self.server, self.name = "", function.name
        super().__init__(output, ev.FunctionCallItem(id=new_id("fc"), **_fields_of(function)))

    def delta(self, text: str) -> None:
        self._output.emit(
            ev.FunctionCallArgumentsDelta(item_id=self.id, output_index=self._index, delta=text)
        )

    def close(self, arguments: str, complete: bool) -> None:
        """End the item; ``arguments``: all of them, as valid JSON."""
        done = ev.FunctionCallArgumentsDone(**self.at, name=self.name, arguments=arguments)
        self._output.emit(done)
        self.close_item(arguments=arguments, status="completed" if complete else "incomplete")


class ClientCallWriter(CallWriter):
    """Writes a call of a tool of OpenAI's API that the client runs; it is shown once complete."""

    runs_on_client = True

    def __init__(self, output: Output, function: FunctionTool) -> None:
        self._output, self.server, self.name, self._kind = output, "", function.name, function.kind
        self.id = new_id({"shell": "sh", "apply_patch": "apc"}.get(function.kind, "tsc"))

    def close(self, arguments: str, complete: bool) -> None:
        """Write the item; ``arguments``: all of them, as valid JSON."""
        values = json.loads(arguments)
        names: dict[str, Any] = {"id": self.id, "call_id": new_id("call")}
        item: ev.Item
        match self._kind:
            case "shell":
                item = ev.ShellCallItem(**names, action=values)
            case "apply_patch":
                item = ev.ApplyPatchCallItem(**names, operation=values)
            case _:
                item = ev.ToolSearchCallItem(**names, execution="client", arguments=values)
        writer = ItemWriter(self._output, item)
        commands = values.get("commands") if isinstance(item, ev.ShellCallItem) else None
        for number, command in enumerate(commands if isinstance(commands, list) else ()):
            at = {**writer.at, "command_index": number}
            self._output.emit(ev.ShellCallCommandAdded(**at, command=""))
            if command:
                self._output.emit(ev.ShellCallCommandDelta(**at, delta=str(command)))
            self._output.emit(ev.ShellCallCommandDone(**at, command=str(command)))
        writer.close_item(status="completed" if complete else "incomplete")


class CustomCallWriter(ItemWriter, CallWriter):
    """Writes a call of a client's custom tool, whose input is a text."""

    runs_on_client = True

    def __init__(self, output: Output, function: FunctionTool) -> None:
        self.server, self.name, self._buffer = "", function.name, ""
        self._may_wrap = function.grammar is None  # else the model cannot wrap the text in JSON
        super().__init__(output, ev.CustomToolCallItem(id=new_id("ctc"), **_fields_of(function)))

    def is_cut(self, text: str) -> bool:
        """Whether ``{"input": …}``, the whole input, ends within its text."""
        if not self._may_wrap or not _WRAPPED_INPUT.match(text):
            return False
        return repair_arguments(text, complete=True).cut

    def delta(self, text: str) -> None:
        """Add to the input; a beginning that may be JSON waits until the whole input is there."""
        self._buffer += text
        if not self._may_wrap or self._buffer.lstrip()[:1] not in ("", "{"):
            self._send(self._buffer)
            self._may_wrap, self._buffer = False, ""

    def _send(self, text: str) -> None:
        if text:
            self._output.emit(ev.CustomToolCallInputDelta(**self.at, delta=text))

    def close(self, text: str, complete: bool) -> None:
        """End the item; OpenAI's has no status: only one that is cut off says so."""
        if self._may_wrap:
            text = _unwrap_input(text)
            self._send(text)
        self._output.emit(ev.CustomToolCallInputDone(**self.at, input=text))
        self.close_item(input=text, status=None if complete else "incomplete")


def _unwrap_input(text: str) -> str:
    """The text of ``{"input": text}``; any other text as it is."""
    try:
        value = from_json(text)  # refuses what no event could carry: half a surrogate pair
    except ValueError:
        return text
    match value:
        case {"input": str(inner), **rest} if not rest:
            return inner
        case _:
            return text


def _fields_of(function: FunctionTool) -> dict[str, Any]:
    return {"call_id": new_id("call"), "name": function.name, "namespace": function.namespace}


class McpCallWriter(ItemWriter, CallWriter):
    """Writes an ``mcp_call`` item."""

    def __init__(
        self, output: Output, server: str, name: str, *, approval_request_id: str | None = None
    ) -> None:
        """``approval_request_id``: the mcp_approval_request by which the client approved the call."""
        super().__init__(output, ev.McpCallItem(id=new_id("mcp"), server_label=server, name=name))
        self.server, self.name, self.arguments = server, name, ""
        self._approval_request_id = approval_request_id
        output.emit(ev.McpCallInProgress(**self.at))

    def delta(self, text: str) -> None:
        self._output.emit(
            ev.McpCallArgumentsDelta(item_id=self.id, output_index=self._index, delta=text)
        )

    def arguments_done(self, arguments: str) -> None:
        self.arguments = arguments
        self._output.emit(ev.McpCallArgumentsDone(**self.at, arguments=arguments))

    def completed(self, output: str) -> None:
        self._output.emit(ev.McpCallCompleted(**self.at))
        self._close(status="completed", output=output)

    def failed(self, error: ev.McpError) -> None:
        self._output.emit(ev.McpCallFailed(**self.at))
        self._close(status="failed", error=error)

    def _close(self, **changes: object) -> None:
        approval = self._approval_request_id
        self.close_item(arguments=self.arguments, approval_request_id=approval, **changes)


class UnlistedCallWriter(CallWriter):
    """Writes no item, for a call that was not offered or that is over the limit. The model reads why;
    the call's text is in an ``agent.repair`` event."""

    def __init__(self, output: Output, server: str, name: str, rule: str) -> None:
        self._output, self.server, self.name, self._rule = output, server, name, rule
        self.id, self.arguments = new_id("mcp"), ""

    def repair(self, recipient: str, body: str, at: int) -> None:
        """Report what the model wrote; ``at``: how many ids it had generated."""
        self._output.emit(ev.AgentRepair(rule=self._rule, at=at, text=f"to={recipient} {body}"))
        log.warning(
            "the response lists no call of %s (%s); the model is told why",
            recipient[:80],
            self._rule,
        )


class CodeWriter(ItemWriter, CallWriter):
    """Writes a ``code_interpreter_call`` item; code in JSON arguments is shown once it is complete."""

    def __init__(self, output: Output, name: str, container: str) -> None:
        """``container``: id of the Python session that the code runs in."""
        self.server, self.name, self.arguments = "code_interpreter", name, "{}"
        self._code = ""
        item = ev.CodeInterpreterCallItem(id=new_id("ci"), container_id=container)
        super().__init__(output, item)
        output.emit(ev.CodeInterpreterCallInProgress(**self.at))

    def _close(self, status: Literal["completed", "incomplete", "failed"], logs: str) -> None:
        self.close_item(code=self._code, outputs=[{"type": "logs", "logs": logs}], status=status)

    def code_delta(self, text: str) -> None:
        self._code += text
        self._output.emit(ev.CodeInterpreterCallCodeDelta(**self.at, delta=text))

    def arguments_done(self, arguments: str) -> None:
        self.arguments = arguments
        code = json.loads(arguments).get("code")
        if not self._code and isinstance(code, str) and code:
            self.code_delta(code)
        self._output.emit(ev.CodeInterpreterCallCodeDone(**self.at, code=self._code))

    def running(self) -> None:
        self._output.emit(ev.CodeInterpreterCallInterpreting(**self.at))

    def completed(self, output: str) -> None:
        self._output.emit(ev.CodeInterpreterCallCompleted(**self.at))
        self._close("completed", output)

    def failed(self, error: ev.McpError) -> None:
        """End the item; an error that the code itself raised counts as completed, with its logs."""
        match error:
            case ev.McpToolExecutionError(content=blocks):  # it ran, and says so itself
                self.completed("\n".join(str(block.get("text", "")) for block in blocks))
            case ev.McpProtocolError(code=code, message=message):
                self._close("incomplete" if code == INTERRUPTED_CODE else "failed", message)
            case ev.HttpError(message=message):
                self._close("failed", message)


_PAGE_CURSOR = re.compile(r"\[(\d{1,9})\] ")
"""Beginning of a page of the browser."""
_RESULT_LINE = re.compile(r"^L(\d{1,9}): 【\d+†", re.MULTILINE)
"""The lines of a search's page that link a result."""


class SearchWriter(CallWriter):
    """Writes a ``web_search_call`` item, which opens once the arguments are complete."""

    def __init__(self, output: Output, name: str, *, include_sources: bool = False) -> None:
        """``include_sources``: list the URLs that a search found."""
        self._output, self.server, self.name = output, "browser", name
        self.id, self.arguments = new_id("ws"), "{}"
        self._include_sources = include_sources
        self._action: dict[str, Any] = {}
        self._writer: ItemWriter
        """Made when the arguments are complete."""

    def arguments_done(self, arguments: str) -> None:
        """Open the item with the action that the arguments describe."""
        self.arguments = arguments
        self._action = self._describe(json.loads(arguments))
        item = ev.WebSearchCallItem(id=self.id, action=self._action)
        self._writer = ItemWriter(self._output, item)
        self._output.emit(ev.WebSearchCallInProgress(**self._writer.at))

    def running(self) -> None:
        self._output.emit(ev.WebSearchCallSearching(**self._writer.at))

    def _url(self, cursor: object, line: int = 0) -> str | None:
        find = self._output.find_source
        source = find(cursor, line) if find is not None and isinstance(cursor, int) else None
        return source.url if source is not None else None

    def _describe(self, arguments: dict[str, Any]) -> dict[str, Any]:
        url = self._url(arguments.get("cursor"))
        match self.name:
            case "search":
                query = str(arguments.get("query", ""))
                return {"type": "search", "query": query, "queries": [query]}
            case "find":
                pattern = str(arguments.get("pattern", ""))
                return {"type": "find_in_page", "pattern": pattern, "url": url or ""}
            case _:
                target = arguments.get("id")
                if isinstance(target, str) and target.lower().startswith(("http://", "https://")):
                    url = target
                return {"type": "open_page", "url": url}

    def completed(self, output: str) -> None:
        """End the item; ``output``: the page that the browser shows now."""
        if page := _PAGE_CURSOR.match(output):
            self._add_urls(int(page[1]), output)
        self._output.emit(ev.WebSearchCallCompleted(**self._writer.at))
        self._writer.close_item(action=self._action, status="completed")

    def _add_urls(self, cursor: int, output: str) -> None:
        if self._action["type"] != "search":
            self._action |= {"url": self._url(cursor) or self._action["url"]}
        elif self._include_sources:
            lines = (int(line) for line in _RESULT_LINE.findall(output))
            urls = dict.fromkeys(url for line in lines if (url := self._url(cursor, line)))
            self._action |= {"sources": [{"type": "url", "url": url} for url in urls]}

    def failed(self, error: ev.McpError) -> None:
        """End the item as failed; it has no field for the error."""
        self._writer.close_item(status="failed")


class ApprovalRequestWriter(CallWriter):
    """Writes an ``mcp_approval_request`` item, unless the call cannot run anyway."""

    def __init__(self, output: Output, server: str, name: str) -> None:
        self._output, self.server, self.name = output, server, name
        self.id, self.arguments = new_id("mcpr"), "{}"

    def request_approval(self, arguments: str) -> None:
        """Write the approval request; the client's next request answers it."""
        self.runs_on_client, self.arguments = True, arguments
        item = ev.McpApprovalRequestItem(
            id=self.id, server_label=self.server, name=self.name, arguments=arguments
        )
        self._output.close(self._output.open(item), item)


class ToolSearchWriter(CallWriter):
    """Writes a ``tool_search_call`` item, and with the result a ``tool_search_output``."""

    def __init__(self, output: Output, server: str, name: str) -> None:
        self._output, self.server, self.name = output, server, name
        self.id, self.arguments = new_id("tsc"), "{}"
        self.definitions: list[dict[str, Any]] = []
        """The definitions that match; set before it is completed."""

    def arguments_done(self, arguments: str) -> None:
        self.arguments = arguments
        item = ev.ToolSearchCallItem(id=self.id, arguments=json.loads(arguments))
        self._writer = ItemWriter(self._output, item)

    def completed(self, output: str) -> None:
        self._writer.close_item(status="completed")
        result = ItemWriter(self._output, ev.ToolSearchOutputItem(id=new_id("tso")))
        result.close_item(tools=self.definitions, status="completed")

    def failed(self, error: ev.McpError) -> None:
        self._writer.close_item(status="incomplete")


def write_tool_list(output: Output, server: str, tools: Sequence[Tool], error: str | None) -> None:
    """Write the ``mcp_list_tools`` item of a server; ``error``: why it has no tools."""
    item = ev.McpListToolsItem(id=new_id("mcpl"), server_label=server, tools=[])
    writer = ItemWriter(output, item)
    output.emit(ev.McpListToolsInProgress(**writer.at))
    listed = [
        ev.McpListedTool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.parameters,
            annotations={"readOnlyHint": tool.read_only},
        )
        for tool in tools
    ]
    end = ev.McpListToolsCompleted if error is None else ev.McpListToolsFailed
    output.emit(end(**writer.at))
    writer.close_item(tools=listed, error=error)
