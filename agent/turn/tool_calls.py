"""The tool calls of a turn: where each goes, its arguments as they stream, its run and its result."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from agent import events as ev
from agent.conversation.conversation import Assistant
from agent.formats.protocol import FunctionTool, Kind, Opened
from agent.formats.recipients import ALIASES, Recipients
from agent.formats.tool_arguments import CodeArguments, settle
from agent.turn.approval import Asking
from agent.turn.call_writers import (
    INTERRUPTED,
    Approved,
    CodeWriter,
    HeldWriter,
    SearchWriter,
    Writer,
)
from agent.turn.output import CustomCallWriter, FunctionCallWriter, McpCallWriter, MessageWriter
from tools.results import stopped
from tools.types import Tool, ToolResult

if TYPE_CHECKING:
    from agent.turn.loop import Turn

PYTHON = "python"
"""The model's own tool for code, whose body is no JSON."""
OWN = {PYTHON: ("code_interpreter", "python"), "container.exec": ("shell", "exec")}
"""Where the model's own tools are that are called otherwise here, also when they are not offered."""
_OWN = Recipients(OWN, {"code_interpreter": PYTHON})
SAME_FAILURE = 3
"""So many equal failing calls in a row end the turn: a model that repeats itself will not stop."""
NOT_FOUND, REFUSED, OVER_BUDGET = -32601, -32001, -32003


class Call:
    """One call: written by the model, then run."""

    def __init__(self, calls: Calls, opened: Opened, asked: str | None = None) -> None:
        """``asked``: the id of the request by which its client approved it."""
        self._calls = calls
        turn = calls.turn
        self.recipient = opened.recipient or opened.raw_recipient or "unknown"
        self.tool = calls.tools.get(opened.recipient or "")
        self.known = opened.kind is Kind.TOOL
        self.error: str | None = None
        self.arguments = "{}"
        self.text: str | None = None
        """What the model is told of it, once that is known."""
        self.failed = False
        self.printed: list[str] | None = None
        """What it has said so far, once it runs."""
        self._chunks: list[str] = []
        self._code: CodeArguments | None = None
        self.writer: FunctionCallWriter | CustomCallWriter | Writer
        if self.known and self.tool is None:
            self.writer = _clients(turn, calls.clients[self.recipient])
            return
        self.writer = self._ours(opened, asked)
        self.asking = Asking(turn, self.writer)
        if self.recipient == PYTHON and not opened.json:
            self._code = CodeArguments()
            self._stream(self._code.open())

    def _ours(self, opened: Opened, asked: str | None) -> Writer:
        """How it is shown that we run it."""
        turn, hosted = self._calls.turn, self._calls.turn.options.hosted
        label, name = self._label()
        if self.tool is not None:
            if hosted.shows_code(label, opened.raw_recipient):
                container = turn.conversation.id
                return CodeWriter(turn.output, name, container)
            if hosted.shows_search(label):
                return SearchWriter(turn.output, name, sources=hosted.sources)
        if (label, name) in hosted.held and not asked:
            return HeldWriter(turn.output, label, name)
        return McpCallWriter(turn.output, label, name, asked=asked)

    def _label(self) -> tuple[str, str]:
        if self.tool is not None:
            return self.tool.server, self.tool.name
        if own := _OWN.resolve(self.recipient):
            return OWN[own]
        server, _, name = self.recipient.rpartition(".")
        return server or "unknown", name

    @property
    def id(self) -> str:
        """Its item's."""
        return self.writer.id

    @property
    def client(self) -> bool:
        """The client runs it, not we."""
        match self.writer:
            case FunctionCallWriter() | CustomCallWriter():
                return True
            case HeldWriter(asked=asked):
                return asked
            case _:
                return False

    def told_if(self, why: str) -> str:
        """What the model is told of it if it goes no further; what it has done stays done."""
        if self.text is not None:
            return self.text
        if self.printed is None:
            return f"Error: {why} before it ran"
        return stopped("".join(self.printed), f"Error: {why} while it ran")

    def delta(self, text: str) -> None:
        if isinstance(self.writer, CodeWriter) and self._code:
            self.writer.code(text)
        self._stream(self._code.feed(text) if self._code else text)

    def _stream(self, text: str) -> None:
        self._chunks.append(text)
        self.writer.delta(text)

    def close(self, complete: bool) -> None:
        if isinstance(self.writer, CustomCallWriter):
            self.arguments = "".join(self._chunks)
            self.writer.close(self.arguments)
            if complete:
                self._calls.pending.append(self)
            return
        if self._code:
            self._stream(self._code.close())
            self.arguments = "".join(self._chunks)
        else:
            settled = settle("".join(self._chunks), complete)
            self.arguments, self.error = settled.json, settled.error
            if settled.repaired or settled.error:
                turn = self._calls.turn
                at = len(turn.generated[-1]) if turn.generated else 0
                turn.emit(ev.AgentRepair(rule="arguments", at=at, text=""))
        if isinstance(self.writer, FunctionCallWriter):
            # The client gets it in any case; what its own check says goes to the model.
            self.writer.close(self.arguments, complete)
            self._calls.turn.constraints.tell(self.recipient)
        elif isinstance(self.writer, HeldWriter) and complete and not self._wrong():
            self.writer.ask(self.arguments)
        else:
            self.writer.arguments_done(self.arguments)
        if complete:
            self._calls.pending.append(self)
        elif not self.client:
            message = "The call was cut off before it ran."
            self.ours.failed(ev.McpProtocolError(code=INTERRUPTED, message=message))

    def _wrong(self) -> bool:
        """It cannot run, so nobody need be asked."""
        constraints = self._calls.turn.constraints
        return bool(self.error or constraints.problem(self.recipient, self.arguments))

    @property
    def ours(self) -> Writer:
        """Its writer, where we run it."""
        assert not isinstance(self.writer, FunctionCallWriter | CustomCallWriter)
        return self.writer


class Calls:
    """All calls of one turn; ``open`` a call, then ``run`` what is pending."""

    def __init__(self, turn: Turn) -> None:
        form, offered = turn.runtime.format, turn.options.tools
        self.turn = turn
        self.tools: dict[str, Tool] = {
            form.canonical(tool.model_name): tool
            for tool in (turn.host.tools() if offered is None else offered)
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
        call = Call(self, opened)
        if call.tool is not None:  # it is connected while the arguments are written
            self.turn.host.begin(call.tool.server)
        return call

    def resume(self, approved: Sequence[Approved]) -> None:
        """Calls of before, that may run now, are pending."""
        for one in approved:
            same = (
                n for n, t in self.tools.items() if (t.server, t.name) == (one.server, one.name)
            )
            name = next(same, f"{one.server}.{one.name}")
            kind = Kind.TOOL if name in self.tools else Kind.TOOL_UNKNOWN
            call = Call(self, Opened(kind, name, name, json=True), one.request)
            call.delta(one.arguments)
            call.close(True)

    @property
    def client_is_next(self) -> bool:
        """A pending call is the client's to run."""
        return any(call.client for call in self.pending)

    def untold(self, why: str) -> list[tuple[str, str]]:
        """Recipients of pending calls whose results the model has not got yet, and what it would be
        told if they went no further."""
        return [(call.recipient, call.told_if(why)) for call in self.pending if not call.client]

    async def run(self) -> bool:
        """Run the pending calls; true when the turn is over with them.

        In order, but those that only read and were made one after the other run together.
        """
        client_is_next = self.client_is_next
        ours = [call for call in self.pending if not call.client]
        while ours:
            self.pending = ours
            batch = ours[: max(1, _leading(ours))]
            try:
                await self._run_batch(batch)
            except BaseException:
                self.abandon("interrupted")
                raise
            for call in batch:
                self._count(call)
                self._tell(call, call.text or "")
            ours = ours[len(batch) :]
        self.pending = []
        return client_is_next or self._stuck()

    def abandon(self, why: str) -> None:
        """The pending calls end here: their items are closed, and history says what was done."""
        for call in self.pending:
            if call.text is None and not call.client:
                message = call.told_if(why)
                call.ours.failed(ev.McpProtocolError(code=INTERRUPTED, message=message))
            self._tell(call, call.told_if(why))
        self.pending = []

    def _tell(self, call: Call, text: str) -> None:
        turn = self.turn
        turn.conversation.add_result(turn.runtime.format, call.recipient, text)

    async def _run_batch(self, batch: list[Call]) -> None:
        """Afterwards each has its text. People are asked one thing at a time."""
        allowed = [call for call in batch if await self._may_run(call)]
        work = [self._call(call) for call in allowed]
        results = await asyncio.gather(*work, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _may_run(self, call: Call) -> bool:
        """Whether it runs; where not, it has failed."""
        writer = call.ours
        self._made += 1
        most = self.turn.options.max_tool_calls
        if most is not None and self._made > most:
            text = "the limit of tool calls for this answer is used up; answer with what is known"
            self._fail(call, OVER_BUDGET, text)
        elif call.tool is None:
            self._fail(call, NOT_FOUND, self._unknown(call.recipient))
        elif call.error:
            self._fail(call, -32602, f"the arguments are not valid JSON: {call.error}")
        elif why := self.turn.constraints.problem(call.recipient, writer.arguments):
            self._fail(call, -32602, f"the arguments do not fit the tool's schema: {why}")
        elif why := await self._refused(call, call.tool):
            text = f"the call of {writer.server}.{writer.name} was refused: {why}"
            self._fail(call, REFUSED, text)
        else:
            return True
        return False

    async def _refused(self, call: Call, tool: Tool) -> str | None:
        """Asked of the tool as it is now: what the turn began with may have changed."""
        turn = self.turn
        call.tool = await turn.until_stopped(turn.host.current(tool))
        return await call.asking.refused(call.tool, call.arguments)

    async def _call(self, call: Call) -> None:
        turn, item = self.turn, call.id
        assert call.tool is not None
        began = time.monotonic()
        call.ours.begins()
        call.printed = printed = []

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            turn.emit(
                ev.AgentToolProgress(item_id=item, progress=progress, total=total, message=message)
            )

        def on_output(stream: str, text: str) -> None:
            printed.append(text)
            turn.emit(ev.AgentToolOutputDelta(item_id=item, stream=stream, delta=text))

        try:
            result = await turn.until_stopped(
                turn.host.call(
                    call.tool,
                    json.loads(call.arguments),
                    on_progress=on_progress,
                    on_output=on_output,
                    on_elicitation=call.asking.elicit,
                    on_sampling=call.asking.sample,
                )
            )
        finally:
            turn.measures.tool_seconds += time.monotonic() - began
        self._result(call, result)

    def _result(self, call: Call, result: ToolResult) -> None:
        writer, text = call.ours, result.text
        call.failed = result.failure != "none"
        call.text = f"Error: {text}" if call.failed and not text.startswith("Error") else text
        match result.failure:
            case "none":
                writer.completed(text)
            case "execution":
                content = result.content or [{"type": "text", "text": text}]
                writer.failed(ev.McpToolExecutionError(content=content))
            case "protocol":
                writer.failed(ev.McpProtocolError(code=result.code, message=text))

    def _fail(self, call: Call, code: int, text: str) -> None:
        call.failed, call.text = True, f"Error: {text}"
        call.ours.failed(ev.McpProtocolError(code=code, message=text))

    def _unknown(self, recipient: str) -> str:
        # As it would be called if it were there; its server's name stands before "." or "__".
        name = recipient.removeprefix("mcp.").removeprefix("functions.")
        if not self.turn.host.left_out.isdisjoint((name, name.replace(".", "__").split("__")[0])):
            return f"the tool {name} is not among those that --tools chooses"
        nearest = self.recipients.nearest(recipient)
        known = f"; the nearest are {', '.join(nearest)}" if nearest else "; no tool is available"
        return f"there is no tool named {recipient}{known}"

    # --- a model that repeats itself ---

    def _count(self, call: Call) -> None:
        if not call.failed:
            self._failures = 0
            return
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


def _clients(turn: Turn, function: FunctionTool) -> FunctionCallWriter | CustomCallWriter:
    if function.custom:
        free = function.grammar is None
        return CustomCallWriter(turn.output, function.name, function.namespace, free=free)
    return FunctionCallWriter(turn.output, function.name, function.namespace)


def _leading(calls: list[Call]) -> int:
    """How many from the first on only read."""
    reading = (call.tool is not None and call.tool.read_only for call in calls)
    return sum(1 for _ in takewhile(bool, reading))
