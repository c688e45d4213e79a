"""The tool calls of a turn: where each goes, its arguments as they stream, its run and its result."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from agent import events as ev
from agent.conversation import Assistant
from agent.formats.arguments import CodeArguments, settle
from agent.formats.base import Kind, Opened
from agent.formats.recipients import ALIASES, Recipients
from agent.items import FunctionCallWriter, McpCallWriter, MessageWriter
from tools.base import Tool, ToolResult

if TYPE_CHECKING:
    from agent.turn import Turn

PYTHON = "python"
"""The model's own tool for code, whose body is no JSON."""
SAME_FAILURE = 3
"""So many equal failing calls in a row end the turn: a model that repeats itself will not stop."""
NOT_FOUND, REFUSED, INTERRUPTED, OVER_BUDGET = -32601, -32001, -32002, -32003


class Call:
    """One call: written by the model, then run."""

    def __init__(self, calls: Calls, opened: Opened) -> None:
        self._calls = calls
        turn = calls.turn
        self.recipient = opened.recipient or opened.raw_recipient or "unknown"
        self.tool = calls.tools.get(opened.recipient or "")
        self.known = opened.kind is Kind.TOOL
        self.error: str | None = None
        self.arguments = "{}"
        self._chunks: list[str] = []
        self._code: CodeArguments | None = None
        self.writer: FunctionCallWriter | McpCallWriter
        if self.known and self.tool is None:
            function = calls.clients[self.recipient]
            self.writer = FunctionCallWriter(turn.output, function.name, function.namespace)
            return
        label, name = self._label()
        self.writer = McpCallWriter(turn.output, label, name)
        if self.recipient == PYTHON and not opened.json:
            self._code = CodeArguments()
            self._stream(self._code.open())

    def _label(self) -> tuple[str, str]:
        if self.tool is not None:
            return self.tool.server, self.tool.name
        server, _, name = self.recipient.rpartition(".")
        return server or "unknown", name

    @property
    def id(self) -> str:
        """Its item's."""
        return self.writer.id

    @property
    def client(self) -> bool:
        """The client runs it, not we."""
        return isinstance(self.writer, FunctionCallWriter)

    def delta(self, text: str) -> None:
        self._stream(self._code.feed(text) if self._code else text)

    def _stream(self, text: str) -> None:
        self._chunks.append(text)
        self.writer.delta(text)

    def close(self, complete: bool) -> None:
        if self._code:
            self._stream(self._code.close())
            self.arguments = "".join(self._chunks)
        else:
            settled = settle("".join(self._chunks), complete)
            self.arguments, self.error = settled.json, settled.error
            if settled.repaired or settled.error:
                turn = self._calls.turn
                at = len(turn.generated[-1])
                turn.emit(ev.AgentRepair(rule="arguments", at=at, text=""))
        if isinstance(self.writer, FunctionCallWriter):
            # The client gets it in any case; what its own check says goes to the model.
            self.writer.close(self.arguments, complete)
        else:
            self.writer.arguments_done(self.arguments)
        if complete:
            self._calls.pending.append(self)
        elif isinstance(self.writer, McpCallWriter):
            message = "The call was cut off before it ran."
            self.writer.failed(ev.McpProtocolError(code=INTERRUPTED, message=message))


class Calls:
    """All calls of one turn; ``open`` a call, then ``run`` what is pending."""

    def __init__(self, turn: Turn) -> None:
        form, offered = turn.runtime.format, turn.options.tools
        self.turn = turn
        self.tools: dict[str, Tool] = {
            form.canonical(tool.model_name): tool
            for tool in (turn.runtime.host.tools() if offered is None else offered)
        }
        self.clients = {form.canonical(f.model_name): f for f in turn.options.functions}
        schemas = {name: function.parameters for name, function in self.clients.items()}
        schemas |= {name: tool.parameters for name, tool in self.tools.items()}
        self.recipients = Recipients([*self.clients, *self.tools], ALIASES, schemas)
        self.pending: list[Call] = []
        self._made = 0
        self._failing: tuple[str, str] | None = None
        self._failures = 0

    def open(self, opened: Opened) -> Call:
        return Call(self, opened)

    @property
    def client_is_next(self) -> bool:
        """A pending call is the client's to run."""
        return any(call.client for call in self.pending)

    async def run(self) -> bool:
        """Run the pending calls, one after the other; true when the turn is over with them."""
        client_is_next = self.client_is_next
        calls, self.pending = self.pending, []
        ours = [call for call in calls if not call.client]
        for position, call in enumerate(ours):
            try:
                text = await self._run(call)
            except BaseException:
                self.pending = ours[position:]
                self.abandon("interrupted")
                raise
            self._tell(call, text)
        return client_is_next or self._stuck()

    def abandon(self, why: str) -> None:
        """The pending calls will not run: their items are closed, and history says so."""
        for call in self.pending:
            if isinstance(call.writer, McpCallWriter):
                call.writer.failed(
                    ev.McpProtocolError(code=INTERRUPTED, message=f"Not run: {why}.")
                )
            self._tell(call, f"Error: {why}")
        self.pending = []

    def _tell(self, call: Call, text: str) -> None:
        turn = self.turn
        turn.conversation.add_result(turn.runtime.format, call.recipient, text)

    async def _run(self, call: Call) -> str:
        """Run one; what the model is told of it."""
        writer = call.writer
        assert isinstance(writer, McpCallWriter), "the client's calls are not ours to run"
        self._made += 1
        most = self.turn.options.max_tool_calls
        if most is not None and self._made > most:
            text = "the limit of tool calls for this answer is used up; answer with what is known"
            return self._fail(call, OVER_BUDGET, text)
        if call.tool is None:
            return self._fail(call, NOT_FOUND, self._unknown(call.recipient))
        if call.error:
            return self._fail(call, -32602, f"the arguments are not valid JSON: {call.error}")
        if not await self._allowed(call.tool, writer):
            who = "by the user" if self.turn.options.approver else "nobody is there to approve it"
            text = f"the call of {writer.server}.{writer.name} was refused: {who}"
            return self._fail(call, REFUSED, text)
        result = await self._call(call.tool, writer, json.loads(call.arguments))
        return self._result(call, writer, result)

    async def _call(
        self, tool: Tool, writer: McpCallWriter, arguments: dict[str, object]
    ) -> ToolResult:
        turn = self.turn
        began = time.monotonic()

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            turn.emit(
                ev.AgentToolProgress(
                    item_id=writer.id, progress=progress, total=total, message=message
                )
            )

        def on_output(stream: str, text: str) -> None:
            turn.emit(ev.AgentToolOutputDelta(item_id=writer.id, stream=stream, delta=text))

        try:
            return await turn.until_stopped(
                turn.runtime.host.call(
                    tool, arguments, on_progress=on_progress, on_output=on_output
                )
            )
        finally:
            turn.measures.tool_seconds += time.monotonic() - began

    def _result(self, call: Call, writer: McpCallWriter, result: ToolResult) -> str:
        match result.failure:
            case "none":
                self._failures = 0
                writer.completed(result.text)
                return result.text
            case "execution":
                content = result.content or [{"type": "text", "text": result.text}]
                writer.failed(ev.McpToolExecutionError(content=content))
            case "protocol":
                writer.failed(ev.McpProtocolError(code=result.code, message=result.text))
        self._note_failure(call)
        return result.text if result.text.startswith("Error") else f"Error: {result.text}"

    def _fail(self, call: Call, code: int, text: str) -> str:
        assert isinstance(call.writer, McpCallWriter)
        call.writer.failed(ev.McpProtocolError(code=code, message=text))
        self._note_failure(call)
        return f"Error: {text}"

    def _unknown(self, recipient: str) -> str:
        nearest = self.recipients.nearest(recipient)
        known = f"; the nearest are {', '.join(nearest)}" if nearest else "; no tool is available"
        return f"there is no tool named {recipient}{known}"

    async def _allowed(self, tool: Tool, writer: McpCallWriter) -> bool:
        match self.turn.runtime.decide(tool):
            case "allow":
                return True
            case "deny":
                return False
        turn = self.turn
        preview = await turn.runtime.host.preview(tool, json.loads(writer.arguments))
        turn.emit(
            ev.AgentApprovalRequested(
                item_id=writer.id,
                server=tool.server,
                tool=tool.name,
                arguments=writer.arguments,
                reason="the policy asks before this tool runs",
                preview=preview,
            )
        )
        approver = turn.options.approver
        approved = approver is not None and await turn.until_stopped(
            approver(tool, writer.arguments)
        )
        turn.emit(
            ev.AgentApprovalResolved(
                item_id=writer.id,
                decision="approved" if approved else "refused",
                by="person" if approver else "policy: nobody to ask; --approve allows it",
            )
        )
        return approved

    # --- a model that repeats itself ---

    def _note_failure(self, call: Call) -> None:
        key = (call.recipient, call.arguments)
        self._failures = self._failures + 1 if key == self._failing else 1
        self._failing = key

    def _stuck(self) -> bool:
        if self._failures < SAME_FAILURE:
            return False
        recipient = self._failing[0] if self._failing else ""
        text = f"I stopped: the same call of {recipient} failed {self._failures} times in a row."
        writer = MessageWriter(self.turn.output, "final_answer")
        writer.delta(text)
        writer.close(True)
        self.turn.conversation.add(self.turn.runtime.format, Assistant(text))
        return True
