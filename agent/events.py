"""The types of the stream: response, items and events, as every interface shows them.

Names, fields and order are those of OpenAI's Responses API
(https://platform.openai.com/docs/api-reference/responses-streaming); ``agent.*`` events carry what it
lacks. A response's life, in order: ``response.created``, ``response.in_progress``, its items one after
the other, then exactly one of ``response.completed``, ``.incomplete``, ``.failed``. Each item opens
with ``response.output_item.added``, streams its own events, and closes with
``response.output_item.done``, which holds the final item. Official events are numbered from 0 without
gaps; ``agent.*`` events carry no number and may come anywhere before the last one.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

DEFAULT_NAMESPACE = "functions"
"""The group that gpt-oss sees all functions in; a client's of this name adds nothing to names."""


def qualified_name(name: str, namespace: str | None) -> str:
    """The name under which the model sees a client's tool of a group."""
    return f"{namespace}__{name}" if namespace not in (None, "", DEFAULT_NAMESPACE) else name


def _absent(value: object) -> bool:
    return value is None


class WireModel(BaseModel):
    """Base of everything on the wire: unknown fields are an error, so that a misspelling is found."""

    # Built when first used: a process that only lists models pays for none of them.
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


class TypedModel(WireModel):
    """Base of what has a ``type``, which each class names in its class statement."""

    def __init_subclass__(cls, type: str = "", **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if type:  # pydantic, which reads the fields after this, tells the models apart by it
            cls.__annotations__["type"] = f"Literal[{type!r}]"
            setattr(cls, "type", type)  # noqa: B010


# --- items ---

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


class BasePart(TypedModel):
    """Base of the parts of items, and of errors."""

    type: str = ""


class BaseItem(TypedModel):
    """Base of the items."""

    id: str
    type: str = ""


class ReasoningText(BasePart, type="reasoning_text"):
    """One part of a reasoning item: raw reasoning text."""

    text: str = ""


class SummaryText(BasePart, type="summary_text"):
    """One part of a reasoning item's summary (`agent.turn.reasoning_summary`)."""

    text: str = ""


class OutputText(BasePart, type="output_text"):
    """One part of a message: text, its citations, and log probabilities on request."""

    text: str = ""
    annotations: list[dict[str, Any]] = Field(default_factory=list)
    logprobs: list[dict[str, Any]] = Field(default_factory=list)


class ReasoningItem(BaseItem, type="reasoning"):
    """The model's reasoning (Harmony's analysis channel)."""

    summary: list[SummaryText] = Field(default_factory=list)
    content: list[ReasoningText] = Field(default_factory=list)
    encrypted_content: str | None = Field(default=None, exclude_if=_absent)
    """Where the request includes it: the content as a token (`agent.conversation.reasoning_token`)."""
    status: ItemStatus = "in_progress"


class MessageItem(BaseItem, type="message"):
    """A message of the model: a preamble before a call (phase commentary) or the final answer."""

    role: Literal["assistant"] = "assistant"
    phase: Phase = "final_answer"
    content: list[OutputText] = Field(default_factory=list)
    status: ItemStatus = "in_progress"


class FunctionCallItem(BaseItem, type="function_call"):
    """A call of a tool that the client runs; the response ends with it."""

    call_id: str
    name: str
    namespace: str | None = None
    """The group of the client's tools that it belongs to."""
    arguments: str = ""
    status: ItemStatus = "in_progress"


class CodedError(BasePart):
    """An error with a number and a sentence."""

    code: int
    message: str

    @property
    def text(self) -> str:
        return self.message


class McpProtocolError(CodedError, type="mcp_protocol_error"):
    """A call that never became a tool result: a JSON-RPC error code and a sentence."""


class McpToolExecutionError(BasePart, type="mcp_tool_execution_error"):
    """A tool that ran and reported failure (MCP ``isError``); ``content``: its content blocks."""

    content: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return "\n".join(str(block.get("text") or json.dumps(block)) for block in self.content)


class HttpError(CodedError, type="http_error"):
    """A server over HTTP that answered a call with an error status."""


McpError = Annotated[
    McpProtocolError | McpToolExecutionError | HttpError, Field(discriminator="type")
]


class McpCallItem(BaseItem, type="mcp_call"):
    """A call of an MCP tool, run by this process; ``output`` or ``error`` is set once it ran."""

    server_label: str
    name: str
    arguments: str = ""
    output: str | None = None
    error: McpError | None = None
    approval_request_id: str | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] = "in_progress"


class McpListedTool(WireModel):
    """One tool of a server, as its ``tools/list`` declares it."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None = None


class McpListToolsItem(BaseItem, type="mcp_list_tools"):
    """The tools of a server; once per server and conversation, only to requests that name it."""

    server_label: str
    tools: list[McpListedTool]
    error: str | None = None


class McpApprovalRequestItem(BaseItem, type="mcp_approval_request"):
    """A call that waits for its client's word: the response ends with it, and the next request
    answers with an ``mcp_approval_response``."""

    server_label: str
    name: str
    arguments: str


class CustomToolCallItem(BaseItem, type="custom_tool_call"):
    """A call of a tool of the client's whose input is a text of its own form; ends the response."""

    call_id: str
    name: str
    namespace: str | None = None
    input: str = ""
    status: ItemStatus | None = Field(default=None, exclude_if=_absent)
    """Only of one that is cut off: OpenAI's item has none."""


class CodeInterpreterCallItem(BaseItem, type="code_interpreter_call"):
    """Python that this process runs, for requests that have ``code_interpreter``."""

    container_id: str
    code: str = ""
    outputs: list[dict[str, Any]] | None = None
    """Its output, for clients that send items back; also if a request does not include it."""
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"] = (
        "in_progress"
    )


class WebSearchCallItem(BaseItem, type="web_search_call"):
    """A use of the browser, for requests that have ``web_search``."""

    action: dict[str, Any]
    """search{query}, open_page{url} or find_in_page{url, pattern}"""
    status: Literal["in_progress", "searching", "completed", "failed"] = "in_progress"


class ToolSearchCallItem(BaseItem, type="tool_search_call"):
    """A search for tools: for those that the request defers, or one that the client runs."""

    call_id: str | None = None
    execution: Literal["server", "client"] = "server"
    arguments: dict[str, Any]
    status: Literal["in_progress", "completed", "incomplete"] = "in_progress"


class ShellCallItem(BaseItem, type="shell_call"):
    """Commands that the client runs, for requests that have ``shell``; they end the response."""

    call_id: str
    action: dict[str, Any]
    """commands, and timeout_ms and max_output_length where the model limits them"""
    environment: dict[str, Any] = Field(default_factory=lambda: {"type": "local"})
    status: Literal["in_progress", "completed", "incomplete"] = "in_progress"


class ApplyPatchCallItem(BaseItem, type="apply_patch_call"):
    """A change of a file that the client makes, for requests that have ``apply_patch``; it ends the
    response."""

    call_id: str
    operation: dict[str, Any]
    """create_file{path, diff}, update_file{path, diff} or delete_file{path}"""
    status: Literal["in_progress", "completed", "incomplete"] = "in_progress"
    """OpenAI's has no ``incomplete``: only one that is cut off says so."""


class ToolSearchOutputItem(BaseItem, type="tool_search_output"):
    """The definitions that such a search returns, as they are in requests."""

    call_id: None = None
    execution: Literal["server"] = "server"
    tools: list[dict[str, Any]] = Field(default_factory=list)
    status: Literal["in_progress", "completed", "incomplete"] = "in_progress"


class CompactionItem(BaseItem, type="compaction"):
    """A summary in place of what precedes it, for requests that have ``context_management`` or end
    with a ``compaction_trigger``."""

    encrypted_content: str = ""
    """The summary as a token (`agent.server.input.compaction_token`)."""


Item = Annotated[
    ReasoningItem | MessageItem | FunctionCallItem | McpCallItem | McpListToolsItem
    | McpApprovalRequestItem | CustomToolCallItem | CodeInterpreterCallItem | WebSearchCallItem
    | ToolSearchCallItem | ToolSearchOutputItem | ShellCallItem | ApplyPatchCallItem | CompactionItem,
    Field(discriminator="type"),
]  # fmt: skip


def client_tool(item: Item) -> str | None:
    """The name, as the model knows it, of the tool that the client runs for an item; None: it runs
    nothing for it."""
    match item:
        case (
            FunctionCallItem(name=name, namespace=space)
            | CustomToolCallItem(name=name, namespace=space)
        ):
            return qualified_name(name, space)
        case ToolSearchCallItem(execution="client") | ShellCallItem() | ApplyPatchCallItem():
            return item.type.removesuffix("_call")
        case _:
            return None


# --- response ---


class InputTokensDetails(WireModel):
    """Input tokens that were in the prefix cache already."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(WireModel):
    """Output tokens that were reasoning."""

    reasoning_tokens: int = 0


class Usage(WireModel):
    """Tokens of a whole response; its input counts every prompt that it took (one per generation)."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = Field(default_factory=InputTokensDetails)
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = Field(default_factory=OutputTokensDetails)
    total_tokens: int = 0


class ResponseError(WireModel):
    """Why a response failed: a code of the Responses API and a sentence."""

    code: str
    message: str


IncompleteReason = Literal["max_output_tokens", "content_filter", "steered"]


class IncompleteDetails(WireModel):
    """Which limit cut a response off; ``steered``: another response continues it."""

    reason: IncompleteReason


class Reasoning(WireModel):
    """The reasoning settings that apply."""

    effort: str | None = None
    summary: str | None = None
    context: str | None = Field(default=None, exclude_if=_absent)
    """The turns whose reasoning the model reads again: ``current_turn`` in responses to clients."""
    max_tokens: int | None = Field(default=None, exclude_if=_absent)
    """The budget of the reasoning before a call or the answer, if there is one."""


Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ConversationReference(WireModel):
    """A conversation by its id."""

    id: str


class ResponseRepair(WireModel):
    """One repair: ``rule`` names it, ``text`` is its text that is in no item."""

    rule: str
    text: str = ""
    item_id: str | None = None


class Response(WireModel):
    """One answer to one request; every key is always present (Open Responses wants them all)."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Status = "in_progress"
    model: str
    output: list[Item] = Field(default_factory=list)
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    reasoning: Reasoning | None = Field(default_factory=Reasoning)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    text: dict[str, Any] = Field(default_factory=lambda: {"format": {"type": "text"}})
    truncation: Literal["auto", "disabled"] = "disabled"
    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_logprobs: int = 0
    store: bool = True
    background: bool = False
    service_tier: str = "default"
    metadata: dict[str, str] = Field(default_factory=dict)
    usage: Usage | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    conversation: ConversationReference | None = Field(default=None, exclude_if=_absent)
    """Where the request names a conversation: the one that the response extends."""
    prompt_cache_retention: Literal["in_memory", "24h"] | None = Field(
        default=None, exclude_if=_absent
    )
    user: str | None = Field(default=None, exclude_if=_absent)
    repairs: list[ResponseRepair] | None = Field(default=None, exclude_if=_absent)
    """Repairs of the model's markup, if there are any; OpenAI's API has no such field."""
    stop_sequence: str | None = Field(default=None, exclude_if=_absent)
    """The text of ``stop`` that ended the answer; OpenAI's API has no such field."""
    input_messages: list[dict[str, Any]] | None = Field(default=None, exclude_if=_absent)
    """Where the request has ``enable_response_messages``: the prompt, known at the end."""
    output_messages: list[dict[str, Any]] | None = Field(default=None, exclude_if=_absent)
    """There too: everything after it, tools' results among it."""

    @property
    def abandons_conversation(self) -> bool:
        """Whether the conversation that the request names stays as it was: only a response that ended
        by itself or at a limit extends it."""
        return self.conversation is not None and self.status in ("failed", "cancelled")

    @property
    def client_calls(self) -> list[str]:
        """Names, as the model knows them, of the tools that it called and that the client runs."""
        names = []
        for item in self.output:
            if (name := client_tool(item)) is not None:
                names.append(name)
            elif isinstance(item, McpApprovalRequestItem):
                names.append(f"{item.server_label}__{item.name}")
        return names

    @property
    def output_text(self) -> str:
        """The answer: the texts of the final messages, without the preambles of calls."""
        return "\n\n".join(
            "".join(part.text for part in item.content)
            for item in self.output
            if isinstance(item, MessageItem) and item.phase == "final_answer"
        )


# --- official events ---


class BaseEvent(TypedModel):
    """Base of the events."""

    type: str = ""


class OfficialEvent(BaseEvent):
    """An event of the Responses API; the turn numbers it."""

    sequence_number: int = -1


class ResponseEvent(OfficialEvent):
    """An event that holds the whole response, as far as it is known."""

    response: Response


class ResponseCreated(ResponseEvent, type="response.created"):
    """First official event of every response; its output is still empty."""


class ResponseQueued(ResponseEvent, type="response.queued"):
    """Second official event of a background response: the engine has not begun with it yet."""


class ResponseInProgress(ResponseEvent, type="response.in_progress"):
    """Second official event (third of a background response): the response is being worked on."""


class ResponseCompleted(ResponseEvent, type="response.completed"):
    """Last event of a response that ended by itself; holds all of it."""


class ResponseIncomplete(ResponseEvent, type="response.incomplete"):
    """Last event of a response that was cut off or cancelled; holds what there is."""


class ResponseFailed(ResponseEvent, type="response.failed"):
    """Last event of a response that failed; ``response.error`` says why."""


class OutputItemAdded(OfficialEvent, type="response.output_item.added"):
    """Opens an item; every other event of the item comes after it."""

    output_index: int
    item: Item


class OutputItemDone(OfficialEvent, type="response.output_item.done"):
    """Closes an item and holds its final form; nothing of the item comes after it."""

    output_index: int
    item: Item


class ItemEvent(OfficialEvent):
    """An event of one item: ``output_index`` is its place in the response's output."""

    item_id: str
    output_index: int


Part = Annotated[ReasoningText | OutputText, Field(discriminator="type")]


class ContentPartAdded(ItemEvent, type="response.content_part.added"):
    """Opens a part of a reasoning or message item, before its first delta."""

    content_index: int = 0
    part: Part


class ContentPartDone(ItemEvent, type="response.content_part.done"):
    """Closes a part and holds its final form, after its text's done."""

    content_index: int = 0
    part: Part


class ReasoningTextDelta(ItemEvent, type="response.reasoning_text.delta"):
    """The next piece of a reasoning text."""

    content_index: int = 0
    delta: str


class ReasoningTextDone(ItemEvent, type="response.reasoning_text.done"):
    """A reasoning text is complete; after its last delta."""

    content_index: int = 0
    text: str


class ReasoningSummaryPartAdded(ItemEvent, type="response.reasoning_summary_part.added"):
    """Opens a part of the summary; the parts come one after the other, among the reasoning's deltas."""

    summary_index: int
    part: SummaryText


class ReasoningSummaryTextDelta(ItemEvent, type="response.reasoning_summary_text.delta"):
    """The next piece of the open part."""

    summary_index: int
    delta: str


class ReasoningSummaryTextDone(ItemEvent, type="response.reasoning_summary_text.done"):
    """The text of the open part is complete; after its last delta."""

    summary_index: int
    text: str


class ReasoningSummaryPartDone(ItemEvent, type="response.reasoning_summary_part.done"):
    """Closes a part and holds its final form, after its text's done."""

    summary_index: int
    part: SummaryText
    status: Literal["incomplete"] | None = Field(default=None, exclude_if=_absent)
    """Set where the reasoning was cut off within the part."""


class OutputTextDelta(ItemEvent, type="response.output_text.delta"):
    """The next piece of a message's text, with log probabilities on request."""

    content_index: int = 0
    delta: str
    logprobs: list[dict[str, Any]] = Field(default_factory=list)


class OutputTextAnnotationAdded(ItemEvent, type="response.output_text.annotation.added"):
    """A source that the text cites; after the text's last delta, before its done."""

    content_index: int = 0
    annotation_index: int
    annotation: dict[str, Any]


class OutputTextDone(ItemEvent, type="response.output_text.done"):
    """A message's text is complete; after its last delta and its annotations."""

    content_index: int = 0
    text: str
    logprobs: list[dict[str, Any]] = Field(default_factory=list)


class FunctionCallArgumentsDelta(ItemEvent, type="response.function_call_arguments.delta"):
    """The next piece of the JSON arguments of a call that the client runs."""

    delta: str


class FunctionCallArgumentsDone(ItemEvent, type="response.function_call_arguments.done"):
    """The arguments of such a call are complete and valid JSON."""

    name: str
    arguments: str


class McpCallInProgress(ItemEvent, type="response.mcp_call.in_progress"):
    """An MCP call was opened; directly after its ``output_item.added``."""


class McpCallArgumentsDelta(ItemEvent, type="response.mcp_call_arguments.delta"):
    """The next piece of an MCP call's JSON arguments."""

    delta: str


class McpCallArgumentsDone(ItemEvent, type="response.mcp_call_arguments.done"):
    """The arguments are whole; the tool runs after this and before completed or failed."""

    arguments: str


class McpCallCompleted(ItemEvent, type="response.mcp_call.completed"):
    """The tool's result is there; directly before its ``output_item.done``."""


class McpCallFailed(ItemEvent, type="response.mcp_call.failed"):
    """The call failed or was refused; directly before its ``output_item.done``."""


class McpListToolsInProgress(ItemEvent, type="response.mcp_list_tools.in_progress"):
    """A server's tools are being listed; directly after its ``output_item.added``."""


class McpListToolsCompleted(ItemEvent, type="response.mcp_list_tools.completed"):
    """The list is there; directly before its ``output_item.done``."""


class McpListToolsFailed(ItemEvent, type="response.mcp_list_tools.failed"):
    """The server could not list its tools; directly before its ``output_item.done``."""


class CustomToolCallInputDelta(ItemEvent, type="response.custom_tool_call_input.delta"):
    """The next piece of a custom tool's input, which is free text."""

    delta: str


class CustomToolCallInputDone(ItemEvent, type="response.custom_tool_call_input.done"):
    """A custom tool's input is complete."""

    input: str


class ShellCommandEvent(ItemEvent):
    """An event of one command of a ``shell_call``; OpenAI's has no ``item_id``."""

    command_index: int


class ShellCallCommandAdded(ShellCommandEvent, type="response.shell_call_command.added"):
    """A command begins."""

    command: str


class ShellCallCommandDelta(ShellCommandEvent, type="response.shell_call_command.delta"):
    """The next piece of the command."""

    delta: str


class ShellCallCommandDone(ShellCommandEvent, type="response.shell_call_command.done"):
    """The command is complete."""

    command: str


class CodeInterpreterCallInProgress(ItemEvent, type="response.code_interpreter_call.in_progress"):
    """A call of ``code_interpreter`` was opened; directly after its ``output_item.added``."""


class CodeInterpreterCallCodeDelta(ItemEvent, type="response.code_interpreter_call_code.delta"):
    """The next piece of the code."""

    delta: str


class CodeInterpreterCallCodeDone(ItemEvent, type="response.code_interpreter_call_code.done"):
    """The code is complete; it runs after this."""

    code: str


class CodeInterpreterCallInterpreting(
    ItemEvent, type="response.code_interpreter_call.interpreting"
):
    """The code runs now."""


class CodeInterpreterCallCompleted(ItemEvent, type="response.code_interpreter_call.completed"):
    """The code has run; directly before its ``output_item.done``."""


class WebSearchCallInProgress(ItemEvent, type="response.web_search_call.in_progress"):
    """A use of the browser was opened; directly after its ``output_item.added``."""


class WebSearchCallSearching(ItemEvent, type="response.web_search_call.searching"):
    """The search or the page load runs now."""


class WebSearchCallCompleted(ItemEvent, type="response.web_search_call.completed"):
    """The page is there; directly before its ``output_item.done``."""


class CompactionCompacting(ItemEvent, type="response.compaction.compacting"):
    """A summary is being written; between the item's added and done."""


# --- agent.* events ---


class AgentEvent(BaseEvent):
    """An event that the Responses API does not have."""


MAX_SUMMARY_PATHS = 5
"""Paths that the line about a command's changes names."""


class ServerStatus(WireModel):
    """One MCP server as ``agent.start`` lists it."""

    name: str
    status: Literal["starting", "ready", "failed", "disabled"]
    tools: list[str] = Field(default_factory=list)
    error: str | None = None


class AgentStart(AgentEvent, type="agent.start"):
    """The first line of ``--json-events``: what is about to answer, and with which tools."""

    model: str
    context_length: int
    engine: str
    tools: list[str]
    mcp_servers: list[ServerStatus]


class AgentLoad(AgentEvent, type="agent.load"):
    """Progress of getting the model ready; ``done`` of ``total`` is 0…1000 (per mille)."""

    done: int
    total: int


class AgentPrefill(AgentEvent, type="agent.prefill"):
    """Prompt tokens processed so far; ``cached`` of them were already in the engine's memory."""

    done: int
    total: int
    cached: int


class AgentPrompt(AgentEvent, type="agent.prompt"):
    """Token ids that a generation read since the one before (the first: the whole prompt).

    Opt-in: comes before the generation's ``agent.prefill`` where a listener asked for token events.
    """

    ids: list[int]


class TokenProbability(WireModel):
    """The probability of a token where the model wrote it, and the likeliest ones there.

    Five decimals of the natural logarithms, four digits of the probabilities.
    """

    logprob: float
    """In the model's own distribution, before any sampling setting."""
    probability: float | None
    """After all of them; None: the engine does not say."""
    rank: int | None
    """1: no token was likelier, before them."""
    top: list[tuple[int, float, float | None]]
    """The likeliest tokens, best first: id, logprob, probability."""


class AgentTokens(AgentEvent, type="agent.tokens"):
    """Token ids that the model wrote, in batches, each before the events that its ids become.

    Opt-in, like ``agent.prompt``.
    """

    ids: list[int]
    logprobs: list[TokenProbability | None] | None = Field(default=None, exclude_if=_absent)
    """One per id, where they were asked for (``token_probabilities``); None: not reported."""
    entry: int | None = Field(default=None, exclude_if=_absent)
    """Number of the turn's messages before this generation; in its first batch only."""


class AgentReasoning(AgentEvent, type="agent.reasoning"):
    """A reasoning item is complete: its tokens without markup; before its text's done."""

    item_id: str
    tokens: int


class AgentToolProgress(AgentEvent, type="agent.tool_progress"):
    """A running tool's progress notification (MCP ``notifications/progress``)."""

    item_id: str
    progress: float
    total: float | None = None
    message: str | None = None


class AgentToolOutputDelta(AgentEvent, type="agent.tool_output.delta"):
    """A running tool's partial output, before its result is known."""

    item_id: str
    stream: str
    delta: str


class AgentFileChanges(AgentEvent, type="agent.file_changes"):
    """Files that a command of the shell has created, modified and deleted, also one that failed; before
    its item is done."""

    item_id: str
    created: list[str] = Field(default_factory=list)
    """Paths from the root; of each kind the first."""
    modified: list[str] = Field(default_factory=list)
    deleted: list[str] = Field(default_factory=list)
    total: int | None = None
    """Number of all changed files; null: there were too many files to compare."""

    @property
    def summary(self) -> str:
        if self.total is None:
            return "changed: not known (too many files to compare)"
        names = [f"{name} (new)" for name in self.created] + self.modified
        names += [f"{name} (deleted)" for name in self.deleted]
        listed = ", ".join(names[:MAX_SUMMARY_PATHS])
        line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in listed)
        more = self.total - min(len(names), MAX_SUMMARY_PATHS)
        return f"changed: {line}{f' (+{more} more)' if more else ''}"


class AgentApprovalRequested(AgentEvent, type="agent.approval.requested"):
    """A call waits for the person; between the call's arguments.done and its run."""

    item_id: str
    server: str
    tool: str
    arguments: str
    reason: str
    preview: str | None = None
    """The call's changes (a diff), where its arguments do not show them."""
    diff: str | None = None
    """If the tool was allowed before: the changes of its definition since."""
    rules: list[str] | None = None
    """The rules that a lasting answer gives, as they are stored; empty: it can only be allowed once;
    null: the tool, with any arguments."""


class AgentApprovalResolved(AgentEvent, type="agent.approval.resolved"):
    """A call that waited was approved or refused, by a person, a rule or the end of the turn."""

    item_id: str
    decision: Literal["approved", "refused"]
    by: str
    scope: Literal["once", "session", "always"] | None = None
    """For how long a person approved it."""
    reason: str | None = None
    """Why a person refused it; the model reads that too."""


class AgentElicitationRequested(AgentEvent, type="agent.elicitation.requested"):
    """A running tool's server asks the person: a form (its JSON Schema) or a page to visit."""

    item_id: str
    server: str
    message: str
    requested_schema: dict[str, Any] | None = None
    url: str | None = None


class AgentElicitationResolved(AgentEvent, type="agent.elicitation.resolved"):
    """A server's question was answered, declined or cancelled."""

    item_id: str
    action: Literal["accept", "decline", "cancel"]
    by: str


class AgentRepair(AgentEvent, type="agent.repair"):
    """The model's format was malformed at generated token ``at``; ``text`` is text that is in no item,
    or for ``answer_unfit`` and ``arguments_unfit`` the violation of the JSON Schema."""

    rule: str
    at: int
    text: str
    item_id: str | None = Field(default=None, exclude_if=_absent)


class AgentSteered(AgentEvent, type="agent.steered"):
    """A message of the person in the middle of the turn; the next generation reads it. It comes after
    the results of the calls before it."""

    text: str


class AgentNotice(AgentEvent, type="agent.notice"):
    """A sentence for the person, at any time before the terminal event."""

    level: Literal["info", "warning", "error"]
    message: str


MIN_SPEED_TOKENS = 10
"""Minimal number of tokens for a speed that is shown to people."""


class AgentStats(AgentEvent, type="agent.stats"):
    """Measured speeds, just before the terminal event. Times in milliseconds."""

    prefill_tokens: int
    cached_tokens: int
    output_tokens: int
    aside_input_tokens: int = 0
    """Tokens of side generations (summaries, MCP sampling), which ``usage`` does not have."""
    aside_output_tokens: int = 0
    drafted_tokens: int = 0
    """Tokens that speculative decoding drafted and verified, several in one step."""
    accepted_tokens: int = 0
    tokens_per_second: float
    time_to_first_token_ms: float
    tool_ms: float
    total_ms: float


ContextPartKind = Literal[
    "system", "developer", "tools", "summary", "prompt", "file", "reasoning", "commentary", "call",
    "result", "answer", "opening",
]  # fmt: skip
"""``developer``: instructions, of a project too; ``tools``: definitions; ``file``: what was attached
to a prompt; ``opening``: the beginning of the assistant's next message."""


class ContextPart(WireModel):
    """One part of a prompt."""

    kind: ContextPartKind
    name: str = ""
    """For definitions: the server, empty for their common framing; for files: the path; for calls and
    results: the tool as the model called it; for instructions: their files."""
    turn: int | None = None
    """The turn, counted from 1; null: no turn."""
    entry: int | None = None
    """Index of the conversation's message; null: no message."""
    tokens: int
    """Tokens that the prompt has of it."""
    full_tokens: int
    """Tokens that it has where nothing was done to it."""
    state: Literal["", "folded", "dropped", "summarised", "omitted"] = ""
    """``folded``: only its two ends are in the prompt; ``summarised``: a summary replaces it;
    ``omitted``: gpt-oss reads no such calls of a finished turn, nor their results."""
    pinned: bool = False
    """A compaction spares it."""


class AgentContext(AgentEvent, type="agent.context"):
    """The parts of the context after a generation of a person's turn, before ``agent.stats``: the
    prompt of the next generation. Not for turns of API clients."""

    context_length: int
    tokens: int
    """Tokens of the prompt: the sum of the parts."""
    cached: int
    """Number of them that the turn's generations have read or written."""
    compactable: int
    """Number of them that ``/compact`` would replace by a summary."""
    parts: list[ContextPart]


Terminal = ResponseCompleted | ResponseIncomplete | ResponseFailed
"""The last official event of a response; exactly one comes."""

TokenEvent = AgentPrompt | AgentTokens
"""Events that come only where a listener asked for them."""

Event = Annotated[
    ResponseCreated | ResponseQueued | ResponseInProgress | ResponseCompleted
    | ResponseIncomplete | ResponseFailed | OutputItemAdded | OutputItemDone | ContentPartAdded
    | ContentPartDone | ReasoningTextDelta | ReasoningTextDone | ReasoningSummaryPartAdded
    | ReasoningSummaryTextDelta | ReasoningSummaryTextDone | ReasoningSummaryPartDone
    | OutputTextDelta | OutputTextAnnotationAdded | OutputTextDone | FunctionCallArgumentsDelta
    | FunctionCallArgumentsDone | McpCallInProgress | McpCallArgumentsDelta
    | McpCallArgumentsDone | McpCallCompleted | McpCallFailed | McpListToolsInProgress
    | McpListToolsCompleted | McpListToolsFailed | CustomToolCallInputDelta
    | CustomToolCallInputDone | ShellCallCommandAdded | ShellCallCommandDelta
    | ShellCallCommandDone | CodeInterpreterCallInProgress | CodeInterpreterCallCodeDelta
    | CodeInterpreterCallCodeDone | CodeInterpreterCallInterpreting
    | CodeInterpreterCallCompleted | WebSearchCallInProgress | WebSearchCallSearching
    | WebSearchCallCompleted | CompactionCompacting | AgentStart | AgentLoad | AgentPrefill
    | AgentPrompt | AgentTokens | AgentReasoning | AgentToolProgress | AgentToolOutputDelta
    | AgentFileChanges | AgentApprovalRequested | AgentApprovalResolved | AgentElicitationRequested
    | AgentElicitationResolved | AgentRepair | AgentSteered | AgentNotice | AgentContext
    | AgentStats,
    Field(discriminator="type"),
]  # fmt: skip
