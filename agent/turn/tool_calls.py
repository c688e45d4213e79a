"""The tool calls of a turn: recipients, streamed arguments, runs and results.

A `ToolCall` is written while the model generates it. Its handling depends on who runs it:

=====================  ==================  ===========================================
who runs the call      body                writer
=====================  ==================  ===========================================
the client             JSON                `FunctionCallWriter`; the turn ends with it
the client             text                `CustomCallWriter`; the turn ends with it
this process           JSON, or code for   `McpCallWriter`, or the writer of a hosted
                       GPT-OSS's `python`  tool (`CodeWriter`, `SearchWriter`)
this process, once     JSON                `ApprovalRequestWriter`; the turn ends with it,
the client approves                        the next request brings it as an `ApprovedCall`
no one: the client's   any                 `UnlistedCallWriter`; the result says so
request has no such
tools
=====================  ==================  ===========================================

A call that is complete is pending; after the generation `ToolCallRunner.run` runs the pending calls.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from typing import Any

from agent import events as ev
from agent.conversation.messages import Assistant
from agent.conversation.summary import shorten_entry
from agent.formats import tool_arguments
from agent.formats.protocol import Opened, SegmentKind
from agent.formats.recipients import BUILTIN_TOOL_SERVERS, PYTHON_TOOL, TOOL_ALIASES, Recipients
from agent.formats.tokenizer_text import replace_surrogates
from agent.turn.approval import ApprovalGate
from agent.turn.call_writers import (
    INTERRUPTED_CODE,
    ApprovalRequestWriter,
    CallWriter,
    ClientCallWriter,
    CodeWriter,
    CustomCallWriter,
    FunctionCallWriter,
    McpCallWriter,
    SearchWriter,
    ToolSearchWriter,
    UnlistedCallWriter,
)
from agent.turn.constraints import TurnConstraints
from agent.turn.context import TurnContext
from agent.turn.options import ApprovedCall, DeclaredTools
from agent.turn.output import MessageWriter
from agent.turn.tool_search import ToolSearch
from tools.results import aborted_text
from tools.types import Tool, ToolResult, error_text

_BUILTIN_RECIPIENTS = Recipients(BUILTIN_TOOL_SERVERS, {"code_interpreter": PYTHON_TOOL})
"""GPT-OSS's own tools, also where they are not declared."""
_SEARCH_RECIPIENTS = Recipients(
    [f"browser.{name}" for name in ("search", "open", "find")],
    {**TOOL_ALIASES, "web": "browser.search", "browser": "browser.open"},
)
"""The tools of OpenAI's web search, also where the browser has none of that name."""
MAX_EQUAL_FAILURES = 3
"""This many equal failing calls in a row end the turn: a model that repeats itself will not stop."""
MIN_RESULT_TOKENS = 64
INVALID_PARAMS_CODE, UNKNOWN_TOOL_CODE = -32602, -32601
"""Error codes of JSON-RPC 2.0, section 5.1."""
REFUSED_CODE, OVER_BUDGET_CODE = -32001, -32003
"""Error codes of this program, from the range that JSON-RPC leaves to servers."""

_PREFIXES = re.compile(r"\A(?:functions\.)*(?:mcp\.)?")
"""Prefixes that models put before a server's name, also repeatedly."""


class ToolCall:
    """One call, while the model writes it and until it has its result."""

    def __init__(
        self,
        calls: ToolCallRunner,
        opened: Opened,
        *,
        approval_request_id: str | None = None,
        over_limit: bool = False,
    ) -> None:
        """``approval_request_id``: the mcp_approval_request by which the client approved the call.
        ``over_limit``: the turn has reached its limit of calls; it is not an item."""
        self._calls, self._context, self._over_limit = calls, calls.context, over_limit
        declared, self._constraints = calls.declared, calls.constraints
        self.recipient = opened.recipient or opened.raw_recipient or "unknown"
        self.tool = declared.server_tools.get(opened.recipient or "")
        self.error: str | None = None
        self.cut = False
        """Whether the model ended the call within an argument: it cannot run."""
        self.arguments = "{}"
        self.result_text: str | None = None
        """The result as the model reads it; None before the call has one."""
        self.failed = False
        self.output_chunks: list[str] | None = None
        """Output of the tool so far; None before it runs."""
        self._chunks: list[str] = []
        self._written: list[str] = []
        """The body as the model wrote it; the chunks are as they stream."""
        self._is_code = False
        raw_key = "input" if self._own_argument == "input" else "raw"
        self._json = tool_arguments.JsonArgumentsStream(raw_key)
        self.writer: CallWriter
        if opened.kind is SegmentKind.TOOL and self.tool is None:
            function = declared.client_functions[self.recipient]
            kind = FunctionCallWriter if function.kind == "function" else ClientCallWriter
            client_writer = CustomCallWriter if function.custom else kind
            self.writer = client_writer(self._context.output, function)
            return
        self.writer = self._open_server_writer(opened, approval_request_id)
        if self.recipient == PYTHON_TOOL and not opened.json:
            self._is_code = True
            self._stream('{"code":"')

    def _open_server_writer(self, opened: Opened, approval_request_id: str | None) -> CallWriter:
        output, hosted = self._context.output, self._context.options.hosted_tools
        server, name = self._server_and_name()
        options = self._context.options
        offered = options.tools != () or server in options.list_tools_of
        if self._over_limit:
            return UnlistedCallWriter(output, server, name, "call_over_limit")
        if self.tool is not None and self._calls.searches(self) and options.tool_search == "never":
            return ToolSearchWriter(output, server, name)
        if not (offered or approval_request_id):
            return UnlistedCallWriter(output, server, name, "call_not_offered")
        if self.tool is not None:
            # If the request has the MCP server too, a call of that is not a code_interpreter.
            addressed = opened.raw_recipient == name or server not in options.list_tools_of
            is_code = (server, name) == ("code_interpreter", "python")
            if addressed and hosted.code_interpreter and is_code:
                return CodeWriter(output, name, self._context.conversation.id)
            if hosted.web_search and server == "browser":
                return SearchWriter(output, name, include_sources=hosted.include_sources)
        elif hosted.web_search and (search := _SEARCH_RECIPIENTS.resolve(self.recipient)):
            return SearchWriter(output, search.removeprefix("browser."))
        if (server, name) in hosted.approval_required and not approval_request_id:
            return ApprovalRequestWriter(output, server, name)
        return McpCallWriter(output, server, name, approval_request_id=approval_request_id)

    def _server_and_name(self) -> tuple[str, str]:
        if self.tool is not None:
            return self.tool.server, self.tool.name
        if builtin := _BUILTIN_RECIPIENTS.resolve(self.recipient):
            return BUILTIN_TOOL_SERVERS[builtin]
        bare = _PREFIXES.sub("", self.recipient)
        options = self._context.options
        # Those that the request names, which may have no tools.
        labels = {*options.list_tools_of, *(tool.server for tool in options.tools or ())}
        for label in labels:
            for prefix in (f"{label}.", f"{label}__"):
                if bare.startswith(prefix):
                    return label, bare.removeprefix(prefix)
        server, _, name = bare.rpartition(".")
        if not server and "__" in bare:
            server, _, name = bare.partition("__")
        return server or (labels.pop() if len(labels) == 1 else "unknown"), name

    @property
    def id(self) -> str:
        return self.writer.id

    @property
    def body(self) -> str:
        return "".join(self._chunks)

    @property
    def runs_on_client(self) -> bool:
        return self.writer.runs_on_client and not self.cut

    @cached_property
    def approval_gate(self) -> ApprovalGate:
        return ApprovalGate(self._context, self.writer)

    def abort_text(self, why: str) -> str:
        """The result text if the call is aborted now, with what its tool has printed so far."""
        if self.result_text is not None:
            return self.result_text
        if self.output_chunks is None:
            return error_text(f"{why} before it ran")
        return aborted_text("".join(self.output_chunks), error_text(f"{why} while it ran"))

    def delta(self, text: str) -> None:
        """Add to the body: JSON arguments, code, or a custom tool's text."""
        self._written.append(text)
        if isinstance(self.writer, CodeWriter) and self._is_code:
            self.writer.code_delta(text)
        if self._is_code:
            text = tool_arguments.string_content(text)
        elif not isinstance(self.writer, CustomCallWriter):
            text = self._json.feed(text)
        self._stream(text)

    def _stream(self, text: str) -> None:
        if text:
            self._chunks.append(text)
            self.writer.delta(text)

    def close(self, complete: bool, at: int = 0) -> None:
        """End the body; ``at``: how many ids of its generation there are, for a repair's position."""
        if isinstance(self.writer, CustomCallWriter):
            self.arguments = self.body
            self.cut = complete and self.writer.is_cut(self.body)
            if self.cut:
                self.error = tool_arguments.CUT_OFF
            self.writer.close(self.arguments, complete and not self.cut)
            if complete:
                self._calls.pending.append(self)
            return
        written: str | None = None
        if self._is_code:
            self._stream('"}')
            self.arguments = self.body
        else:
            self._stream(self._json.close())
            if self._json.kind == "raw":
                arguments = tool_arguments.repair_arguments("".join(self._written), complete)
                arguments = replace(arguments, json=self.body)
            else:
                arguments = tool_arguments.repair_arguments(self.body, complete)
            if self._json.behind and self.tool is not None and arguments.error is None:
                arguments = replace(arguments, error=tool_arguments.TEXT_BEHIND)
            is_object = arguments.error is None or self._json.kind == "raw"
            written = arguments.json if is_object else None
            if complete and (respelled := self._respelled()) is not None:
                arguments = tool_arguments.ToolArguments(respelled, repaired=True)
            self.arguments, self.error = arguments.json, arguments.error
            self.cut = complete and arguments.cut
            body = self.body
            if self.error is None and self.arguments.startswith(body) and self.arguments != body:
                self._stream(self.arguments[len(body) :])  # closing brackets, or {} for nothing
            if arguments.repaired or arguments.error or self._json.changed:
                listed = None if isinstance(self.writer, UnlistedCallWriter) else self.id
                repair = ev.AgentRepair(rule="arguments", at=at, text="", item_id=listed)
                self._context.emit(repair)
        if isinstance(self.writer, UnlistedCallWriter):
            self.writer.repair(self.recipient, self.body, at)
        if isinstance(self.writer, FunctionCallWriter | ClientCallWriter):
            # The client gets it in any case; what its own check says goes to the model.
            check = self._constraints.validate_strict_arguments
            if complete and self.error is None and (why := check(self.recipient, self.arguments)):
                repair = ev.AgentRepair(rule="arguments_unfit", at=at, text=why, item_id=self.id)
                self._context.emit(repair)
            self.writer.close(self.arguments, complete and not self.cut)
            self._constraints.warn_unenforced(self.recipient)
        elif isinstance(self.writer, ApprovalRequestWriter) and complete and not self._is_invalid():
            self.writer.request_approval(self.arguments)
        else:  # an item has what the model wrote, where that is a JSON object
            shown = written or self.arguments
            if isinstance(asks := self.writer, ApprovalRequestWriter):
                # It fails without a question.
                self.writer = McpCallWriter(self._context.output, asks.server, asks.name)
                self.writer.delta(shown)
            self.writer.arguments_done(shown)
        if complete:
            self._calls.pending.append(self)
        elif not self.runs_on_client:
            message = "The call was cut off before it ran."
            self.writer.failed(ev.McpProtocolError(code=INTERRUPTED_CODE, message=message))

    def _respelled(self) -> str | None:
        if (tool := self.tool) is None or self._own_argument is None:
            return None
        name = "container.exec" if self._own_argument == "cmd" else tool.name
        return tool_arguments.respell_arguments(name, "".join(self._written))

    @property
    def _own_argument(self) -> str | None:
        if (tool := self.tool) is None:
            return None
        name = tool.model_name if tool.model_name == "container.exec" else tool.name
        argument = {"apply_patch": "input", "container.exec": "cmd"}.get(name)
        return argument if tool.model_parameters.get("required") == [argument] else None

    def _is_invalid(self) -> bool:
        invalid = self._constraints.validate_arguments(self.recipient, self.arguments)
        return bool(self.error or invalid)


class ToolCallRunner:
    """All calls of one turn: `open` each, then `run` those that are pending."""

    def __init__(
        self,
        context: TurnContext,
        declared: DeclaredTools,
        constraints: TurnConstraints,
        search: ToolSearch | None = None,
    ) -> None:
        self.context, self.declared, self.constraints = context, declared, constraints
        self.search = search
        """Finds the tools that the prompt does not declare; None: it declares all."""
        self.pending: list[ToolCall] = []
        """Complete calls without a result, in the order in which the model wrote them."""
        self._made = 0
        self._failing: tuple[str, str] | None = None
        self._failures = 0

    @property
    def prompt_tools(self) -> list[Tool]:
        tools = list(self.declared.server_tools.values())
        return self.search.prompt_tools if self.search else tools

    def searches(self, call: ToolCall) -> bool:
        return self.search is not None and call.tool is self.search.tool

    def open(self, opened: Opened) -> ToolCall:
        call = self._new_call(opened)
        if call.tool is not None:  # it is connected while the arguments are written
            self.context.host.connect(call.tool.server)
        return call

    def _new_call(self, opened: Opened, approval_request_id: str | None = None) -> ToolCall:
        limit = self.context.options.max_tool_calls
        waiting = sum(not call.runs_on_client for call in self.pending)
        return ToolCall(
            self,
            opened,
            approval_request_id=approval_request_id,
            over_limit=limit is not None and self._made + waiting >= limit,
        )

    def add_approved(self, approved: Sequence[ApprovedCall]) -> None:
        """Make calls pending that an earlier response left to the client's approval."""
        tools = self.declared.server_tools
        for request in approved:
            called = (request.server, request.name)
            names = (name for name, tool in tools.items() if (tool.server, tool.name) == called)
            name = next(names, f"{request.server}.{request.name}")
            kind = SegmentKind.TOOL if name in tools else SegmentKind.TOOL_UNKNOWN
            call = self._new_call(Opened(kind, name, name, json=True), request.request_id)
            call.delta(request.arguments)
            call.close(True)

    @property
    def awaits_client(self) -> bool:
        return any(call.runs_on_client for call in self.pending)

    async def run(self) -> bool:
        """Run the pending calls in order, read-only ones side by side; true when they end the turn."""
        awaits_client = self.awaits_client
        calls = [call for call in self.pending if not call.runs_on_client]
        while calls:
            self.pending = calls
            read_only = takewhile(lambda call: call.tool is not None and call.tool.read_only, calls)
            batch = [*read_only] or calls[:1]
            try:
                await self._run_batch(batch)
            except BaseException:
                self.abort("interrupted")
                raise
            for call in batch:
                self._count_failure(call)
                self._record_result(call, call.result_text or "")
            calls = calls[len(batch) :]
        self._declare_new_tools()
        self.pending = []
        return awaits_client or self._repeats_failure()

    def _declare_new_tools(self) -> None:
        """Let the model call tools that a server has added since; the prompt stays as it is."""
        context, tools = self.context, list(self.declared.server_tools.values())
        if context.options.tools is not None:
            return
        known = {(tool.server, tool.name) for tool in tools}
        new = [tool for tool in context.host.tools() if (tool.server, tool.name) not in known]
        if new:
            self.declared = DeclaredTools.resolve(context.options, [*tools, *new], context.format)
            self.constraints.declare(self.declared)

    def abort(self, why: str) -> None:
        """Close the pending calls' items and give each a result; those that the client runs stay."""
        for call in self.pending:
            if call.runs_on_client:
                continue
            text = call.abort_text(why)
            if call.result_text is None:
                call.writer.failed(ev.McpProtocolError(code=INTERRUPTED_CODE, message=text))
            self._record_result(call, text)
        self.pending = []

    def _record_result(self, call: ToolCall, text: str) -> None:
        """Add a result to the conversation; the prompt has only the two ends of a long one."""
        context = self.context
        context.conversation.add_result(context.format, call.recipient, text)
        entry = context.conversation.entries[-1]
        # Half of the context that is free without this result: the rest is for what follows.
        used = len(context.conversation.ids()) - len(entry.prompt_ids)
        limit = max(MIN_RESULT_TOKENS, (context.runtime.context_length - used) // 2)
        if len(entry.ids) <= limit:
            return
        shortened = shorten_entry(context.format, entry, limit)
        if len(shortened) < len(entry.ids):
            entry.shortened_ids = shortened
            name = f"{call.writer.server}.{call.writer.name}"
            message = (
                f"The result of {name} is long: of its {len(entry.ids):,} tokens the model reads"
                f" the first and the last, {limit:,} together."
            )
            context.emit(ev.AgentNotice(level="info", message=message))

    async def _run_batch(self, batch: list[ToolCall]) -> None:
        """Give each call its result. People are asked about one call at a time."""
        allowed = [call for call in batch if await self._may_run(call)]
        work = [self._execute(call) for call in allowed]
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _may_run(self, call: ToolCall) -> bool:
        """Whether the call may run; one that may not has failed afterwards."""
        if call.writer.runs_on_client:  # it is cut off
            self._set_error(call, f"the arguments are not valid JSON: {call.error}")
            return False
        writer = call.writer
        self._made += 1
        limit = self.context.options.max_tool_calls
        if limit is not None and self._made > limit:
            text = "the limit of tool calls for this answer is used up; answer with what is known"
            message = f"A further call was not run: the limit of {limit:,} tool calls is reached."
            self.context.emit(ev.AgentNotice(level="info", message=message))
            self._fail(call, OVER_BUDGET_CODE, text)
        elif call.tool is None:
            self._fail(call, UNKNOWN_TOOL_CODE, self._unknown_tool_text(call.recipient))
        elif call.error:
            self._fail(call, INVALID_PARAMS_CODE, f"the arguments are not valid JSON: {call.error}")
        elif why := await self._violation(call, call.tool):
            text = f"the arguments do not fit the tool's schema: {why}"
            self._fail(call, INVALID_PARAMS_CODE, text)
        elif self.searches(call):  # it reads definitions only, without a question
            return True
        elif why := await call.approval_gate.refusal(call.tool, call.arguments):
            text = f"the call of {writer.server}.{writer.name} was refused: {why}"
            self._fail(call, REFUSED_CODE, text)
        else:
            return True
        return False

    async def _violation(self, call: ToolCall, tool: Tool) -> str | None:
        """Check arguments by the tool's current definition, before any question."""
        context = self.context
        call.tool = tool = await context.until_stopped(context.host.refresh_definition(tool))
        arguments = call.arguments
        why = self.constraints.validate_arguments(call.recipient, arguments, tool)
        return why or context.host.builtins.argument_problem(tool, json.loads(arguments))

    async def _execute(self, call: ToolCall) -> None:
        context, item = self.context, call.id
        assert call.tool is not None
        started = time.monotonic()
        call.writer.running()
        call.output_chunks = chunks = []
        if self.search and self.searches(call):
            search = self.search.run(call.arguments, context.response.tools)
            result, definitions = await context.until_stopped(search)
            if isinstance(call.writer, ToolSearchWriter):
                call.writer.definitions = definitions
            return self._set_result(call, result)

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            context.emit(
                ev.AgentToolProgress(item_id=item, progress=progress, total=total, message=message)
            )

        def on_output(stream: str, text: str) -> None:
            chunks.append(text)
            context.emit(ev.AgentToolOutputDelta(item_id=item, stream=stream, delta=text))

        try:
            work = context.host.call(
                call.tool,
                json.loads(call.arguments),
                on_progress=on_progress,
                on_output=on_output,
                on_elicitation=call.approval_gate.elicit,
                on_sampling=call.approval_gate.sample,
                on_login=call.approval_gate.login if context.options.login else None,
            )
            result = await context.until_stopped(work)
        finally:
            context.usage.tool_seconds += time.monotonic() - started
        self._set_result(call, result)

    def _set_result(self, call: ToolCall, result: ToolResult) -> None:
        writer, text = call.writer, result.text
        call.failed, call.result_text = result.failed, result.model_text
        self._emit_changes(call, result)
        match result.failure:
            case "none":
                writer.completed(text)
            case "execution":
                content = result.content or [{"type": "text", "text": text}]
                writer.failed(ev.McpToolExecutionError(content=content))
            case "protocol":
                writer.failed(ev.McpProtocolError(code=result.code, message=text))

    def _emit_changes(self, call: ToolCall, result: ToolResult) -> None:
        """Tell which files a command has changed; only our own servers are believed."""
        config = self.context.host.server_config(call.tool.server) if call.tool else None
        if config is None or config.builtin is None or not isinstance(result.structured, dict):
            return
        changes = result.structured.get("changes")
        if not isinstance(changes, dict) or changes.get("total") == 0:
            return
        fields: dict[str, Any] = {
            kind: [replace_surrogates(path) for path in changes.get(kind, ())]
            for kind in ("created", "modified", "deleted")
        }
        total = changes.get("total")
        self.context.emit(ev.AgentFileChanges(item_id=call.id, total=total, **fields))

    def _set_error(self, call: ToolCall, text: str) -> None:
        call.failed, call.result_text = True, error_text(text)

    def _fail(self, call: ToolCall, code: int, text: str) -> None:
        self._set_error(call, text)
        call.writer.failed(ev.McpProtocolError(code=code, message=text))

    def _unknown_tool_text(self, recipient: str) -> str:
        # As it would be called if it were there; its server's name is before "." or "__".
        name = recipient.removeprefix("mcp.").removeprefix("functions.")
        server = name.replace(".", "__").split("__")[0]
        if not self.context.host.unselected.isdisjoint((name, server)):
            return f"the tool {name} is not among those that --tools chooses"
        config = self.context.host.server_config(server)
        builtin = config.builtin if config else None
        missing = name.replace("__", ".").removeprefix(f"{server}.")
        if builtin is not None and (why := builtin.why_missing(missing)):
            return why
        nearest = self.declared.recipients.nearest(recipient)
        known = f"; the nearest are {', '.join(nearest)}" if nearest else "; no tool is available"
        return f"there is no tool named {recipient}{known}"

    # --- a model that repeats itself ---

    def _count_failure(self, call: ToolCall) -> None:
        if not call.failed:
            self._failures = 0
            return
        key = (call.recipient, call.arguments)
        self._failures = self._failures + 1 if key == self._failing else 1
        self._failing = key

    def _repeats_failure(self) -> bool:
        """Whether the same call has failed too often; a message then says so and ends the turn."""
        if self._failures < MAX_EQUAL_FAILURES:
            return False
        recipient = self._failing[0] if self._failing else ""
        text = f"I stopped: the same call of {recipient} failed {self._failures} times in a row."
        writer = MessageWriter(self.context.output, "final_answer")
        writer.delta(text)
        writer.close(True)
        self.context.conversation.add(self.context.format, Assistant(text))
        return True
