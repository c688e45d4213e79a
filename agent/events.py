"""The stream's vocabulary: response, items and events, as every face shows them.

Names, fields and order are those of OpenAI's Responses API; ``agent.*`` events carry what it lacks.
A response's life, in order: ``response.created``, ``response.in_progress``, its items one after the
other, then exactly one of ``response.completed``, ``.incomplete``, ``.failed``. Each item opens with
``response.output_item.added``, streams its own events, and closes with ``response.output_item.done``,
which holds the final item. Official events are numbered from 0 without gaps; ``agent.*`` events carry
no number and may stand anywhere before the last one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Base of everything on the wire: unknown fields are an error, so that a misspelling is found."""

    # Built when first used: a process that only lists models pays for none of them.
    model_config = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=True)


# --- items ---

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class ReasoningText(Model):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str = ""


class OutputText(Model):
    type: Literal["output_text"] = "output_text"
    text: str = ""
    annotations: list[dict[str, Any]] = Field(default_factory=list)
    logprobs: list[dict[str, Any]] = Field(default_factory=list)


class ReasoningItem(Model):
    """What the model thinks (Harmony's analysis channel)."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    summary: list[dict[str, Any]] = Field(default_factory=list)
    content: list[ReasoningText] = Field(default_factory=list)
    status: ItemStatus = "in_progress"


class MessageItem(Model):
    """What the model says: a preamble before a call (phase commentary) or the final answer."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    phase: Literal["commentary", "final_answer"] = "final_answer"
    content: list[OutputText] = Field(default_factory=list)
    status: ItemStatus = "in_progress"


class FunctionCallItem(Model):
    """A call of a tool that the client runs; the response ends with it."""

    id: str
    type: Literal["function_call"] = "function_call"
    call_id: str
    name: str
    namespace: str | None = None
    """The group of the client's tools that it belongs to."""
    arguments: str = ""
    status: ItemStatus = "in_progress"


class McpProtocolError(Model):
    type: Literal["mcp_protocol_error"] = "mcp_protocol_error"
    code: int
    message: str


class McpToolExecutionError(Model):
    type: Literal["mcp_tool_execution_error"] = "mcp_tool_execution_error"
    content: list[dict[str, Any]]


class HttpError(Model):
    type: Literal["http_error"] = "http_error"
    code: int
    message: str


McpError = Annotated[
    McpProtocolError | McpToolExecutionError | HttpError, Field(discriminator="type")
]


class McpCallItem(Model):
    """A call of an MCP tool, run by this process; ``output`` or ``error`` is set once it ran."""

    id: str
    type: Literal["mcp_call"] = "mcp_call"
    server_label: str
    name: str
    arguments: str = ""
    output: str | None = None
    error: McpError | None = None
    approval_request_id: str | None = None
    status: Literal["in_progress", "completed", "incomplete", "calling", "failed"] = "in_progress"


class McpListedTool(Model):
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    annotations: dict[str, Any] | None = None


class McpListToolsItem(Model):
    """What a server offers; once per server and conversation, only to requests that name it."""

    id: str
    type: Literal["mcp_list_tools"] = "mcp_list_tools"
    server_label: str
    tools: list[McpListedTool]
    error: str | None = None


class McpApprovalRequestItem(Model):
    """A call that waits for its client's word: the response ends with it, and the next request
    answers with an ``mcp_approval_response``."""

    id: str
    type: Literal["mcp_approval_request"] = "mcp_approval_request"
    server_label: str
    name: str
    arguments: str


class CustomToolCallItem(Model):
    """A call of a tool of the client's whose input is a text of its own form; ends the response."""

    id: str
    type: Literal["custom_tool_call"] = "custom_tool_call"
    call_id: str
    name: str
    namespace: str | None = None
    input: str = ""


class CodeInterpreterCallItem(Model):
    """Python that this process runs, for requests that have ``code_interpreter``."""

    id: str
    type: Literal["code_interpreter_call"] = "code_interpreter_call"
    container_id: str
    code: str = ""
    outputs: list[dict[str, Any]] | None = None
    """What it printed, also where a request does not include it: a client that sends its items back
    would lose it otherwise."""
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"] = (
        "in_progress"
    )


class WebSearchCallItem(Model):
    """A use of the browser, for requests that have ``web_search``."""

    id: str
    type: Literal["web_search_call"] = "web_search_call"
    action: dict[str, Any]
    """search{query}, open_page{url} or find_in_page{url, pattern}"""
    status: Literal["in_progress", "searching", "completed", "failed"] = "in_progress"


Item = Annotated[
    ReasoningItem
    | MessageItem
    | FunctionCallItem
    | McpCallItem
    | McpListToolsItem
    | McpApprovalRequestItem
    | CustomToolCallItem
    | CodeInterpreterCallItem
    | WebSearchCallItem,
    Field(discriminator="type"),
]


# --- response ---


class InputTokensDetails(Model):
    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(Model):
    reasoning_tokens: int = 0


class Usage(Model):
    """Tokens of a whole response; its input counts every prompt that it took (one per generation)."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = Field(default_factory=InputTokensDetails)
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = Field(default_factory=OutputTokensDetails)
    total_tokens: int = 0


class ResponseError(Model):
    code: str
    message: str


class IncompleteDetails(Model):
    reason: Literal["max_output_tokens", "content_filter"]


class Reasoning(Model):
    effort: str | None = None
    summary: str | None = None


def _absent(value: object) -> bool:
    return value is None


Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class Response(Model):
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
    truncation: str = "disabled"
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
    input_messages: list[dict[str, Any]] | None = Field(default=None, exclude_if=_absent)
    """Where the request has ``enable_response_messages``: the prompt, known at the end."""
    output_messages: list[dict[str, Any]] | None = Field(default=None, exclude_if=_absent)
    """There too: everything after it, tools' results among it."""


# --- official events ---


class Official(Model):
    """An event of the Responses API; the turn numbers it."""

    type: str  # first, here too: it is the first key of every line
    sequence_number: int = -1


class ResponseCreated(Official):
    type: Literal["response.created"] = "response.created"
    response: Response


class ResponseInProgress(Official):
    type: Literal["response.in_progress"] = "response.in_progress"
    response: Response


class ResponseCompleted(Official):
    type: Literal["response.completed"] = "response.completed"
    response: Response


class ResponseIncomplete(Official):
    type: Literal["response.incomplete"] = "response.incomplete"
    response: Response


class ResponseFailed(Official):
    type: Literal["response.failed"] = "response.failed"
    response: Response


class OutputItemAdded(Official):
    type: Literal["response.output_item.added"] = "response.output_item.added"
    output_index: int
    item: Item


class OutputItemDone(Official):
    type: Literal["response.output_item.done"] = "response.output_item.done"
    output_index: int
    item: Item


class ItemEvent(Official):
    """An event of one item: ``output_index`` is its place in the response's output."""

    item_id: str
    output_index: int


Part = Annotated[ReasoningText | OutputText, Field(discriminator="type")]


class ContentPartAdded(ItemEvent):
    type: Literal["response.content_part.added"] = "response.content_part.added"
    content_index: int = 0
    part: Part


class ContentPartDone(ItemEvent):
    type: Literal["response.content_part.done"] = "response.content_part.done"
    content_index: int = 0
    part: Part


class ReasoningTextDelta(ItemEvent):
    type: Literal["response.reasoning_text.delta"] = "response.reasoning_text.delta"
    content_index: int = 0
    delta: str


class ReasoningTextDone(ItemEvent):
    type: Literal["response.reasoning_text.done"] = "response.reasoning_text.done"
    content_index: int = 0
    text: str


class OutputTextDelta(ItemEvent):
    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    content_index: int = 0
    delta: str
    logprobs: list[dict[str, Any]] = Field(default_factory=list)


class OutputTextAnnotationAdded(ItemEvent):
    """A source that the text cites; after the text's last delta, before its done."""

    type: Literal["response.output_text.annotation.added"] = "response.output_text.annotation.added"
    content_index: int = 0
    annotation_index: int
    annotation: dict[str, Any]


class OutputTextDone(ItemEvent):
    type: Literal["response.output_text.done"] = "response.output_text.done"
    content_index: int = 0
    text: str
    logprobs: list[dict[str, Any]] = Field(default_factory=list)


class FunctionCallArgumentsDelta(ItemEvent):
    type: Literal["response.function_call_arguments.delta"] = (
        "response.function_call_arguments.delta"
    )
    delta: str


class FunctionCallArgumentsDone(ItemEvent):
    type: Literal["response.function_call_arguments.done"] = "response.function_call_arguments.done"
    name: str
    arguments: str


class McpCallInProgress(ItemEvent):
    type: Literal["response.mcp_call.in_progress"] = "response.mcp_call.in_progress"


class McpCallArgumentsDelta(ItemEvent):
    type: Literal["response.mcp_call_arguments.delta"] = "response.mcp_call_arguments.delta"
    delta: str


class McpCallArgumentsDone(ItemEvent):
    """The arguments are whole; the tool runs after this and before completed or failed."""

    type: Literal["response.mcp_call_arguments.done"] = "response.mcp_call_arguments.done"
    arguments: str


class McpCallCompleted(ItemEvent):
    type: Literal["response.mcp_call.completed"] = "response.mcp_call.completed"


class McpCallFailed(ItemEvent):
    type: Literal["response.mcp_call.failed"] = "response.mcp_call.failed"


class McpListToolsInProgress(ItemEvent):
    type: Literal["response.mcp_list_tools.in_progress"] = "response.mcp_list_tools.in_progress"


class McpListToolsCompleted(ItemEvent):
    type: Literal["response.mcp_list_tools.completed"] = "response.mcp_list_tools.completed"


class McpListToolsFailed(ItemEvent):
    type: Literal["response.mcp_list_tools.failed"] = "response.mcp_list_tools.failed"


class CustomToolCallInputDelta(ItemEvent):
    type: Literal["response.custom_tool_call_input.delta"] = "response.custom_tool_call_input.delta"
    delta: str


class CustomToolCallInputDone(ItemEvent):
    type: Literal["response.custom_tool_call_input.done"] = "response.custom_tool_call_input.done"
    input: str


class CodeInterpreterCallInProgress(ItemEvent):
    type: Literal["response.code_interpreter_call.in_progress"] = (
        "response.code_interpreter_call.in_progress"
    )


class CodeInterpreterCallCodeDelta(ItemEvent):
    type: Literal["response.code_interpreter_call_code.delta"] = (
        "response.code_interpreter_call_code.delta"
    )
    delta: str


class CodeInterpreterCallCodeDone(ItemEvent):
    type: Literal["response.code_interpreter_call_code.done"] = (
        "response.code_interpreter_call_code.done"
    )
    code: str


class CodeInterpreterCallInterpreting(ItemEvent):
    type: Literal["response.code_interpreter_call.interpreting"] = (
        "response.code_interpreter_call.interpreting"
    )


class CodeInterpreterCallCompleted(ItemEvent):
    type: Literal["response.code_interpreter_call.completed"] = (
        "response.code_interpreter_call.completed"
    )


class WebSearchCallInProgress(ItemEvent):
    type: Literal["response.web_search_call.in_progress"] = "response.web_search_call.in_progress"


class WebSearchCallSearching(ItemEvent):
    type: Literal["response.web_search_call.searching"] = "response.web_search_call.searching"


class WebSearchCallCompleted(ItemEvent):
    type: Literal["response.web_search_call.completed"] = "response.web_search_call.completed"


# --- agent.* events ---


class ServerStatus(Model):
    name: str
    status: Literal["starting", "ready", "failed", "disabled"]
    tools: list[str] = Field(default_factory=list)
    error: str | None = None


class AgentStart(Model):
    """The first line of ``--json-events``: what is about to answer, and with which tools."""

    type: Literal["agent.start"] = "agent.start"
    model: str
    context_length: int
    engine: str
    tools: list[str]
    mcp_servers: list[ServerStatus]


class AgentLoad(Model):
    """Progress of getting the model ready; ``done`` of ``total`` is 0…1000 (per mille)."""

    type: Literal["agent.load"] = "agent.load"
    done: int
    total: int


class AgentPrefill(Model):
    """Prompt tokens processed so far; ``cached`` of them were already in the engine's memory."""

    type: Literal["agent.prefill"] = "agent.prefill"
    done: int
    total: int
    cached: int


class AgentReasoning(Model):
    """A reasoning item is whole: how many tokens it took, without markup; before its text's done."""

    type: Literal["agent.reasoning"] = "agent.reasoning"
    item_id: str
    tokens: int


class AgentToolProgress(Model):
    type: Literal["agent.tool_progress"] = "agent.tool_progress"
    item_id: str
    progress: float
    total: float | None = None
    message: str | None = None


class AgentToolOutputDelta(Model):
    """A running tool's partial output, before its result is known."""

    type: Literal["agent.tool_output.delta"] = "agent.tool_output.delta"
    item_id: str
    stream: str
    delta: str


class AgentApprovalRequested(Model):
    """A call waits for the person; between the call's arguments.done and its run."""

    type: Literal["agent.approval.requested"] = "agent.approval.requested"
    item_id: str
    server: str
    tool: str
    arguments: str
    reason: str
    preview: str | None = None
    """What the call would change (a diff), where its arguments do not show it."""
    diff: str | None = None
    """Where the tool was allowed before: how its definition has changed since."""


class AgentApprovalResolved(Model):
    type: Literal["agent.approval.resolved"] = "agent.approval.resolved"
    item_id: str
    decision: Literal["approved", "refused"]
    by: str
    scope: Literal["once", "session", "always"] | None = None
    """For how long a person approved it."""
    reason: str | None = None
    """Why a person refused it; the model reads that too."""


class AgentElicitationRequested(Model):
    """A running tool's server asks the person: a form (its JSON Schema) or a page to visit."""

    type: Literal["agent.elicitation.requested"] = "agent.elicitation.requested"
    item_id: str
    server: str
    message: str
    requested_schema: dict[str, Any] | None = None
    url: str | None = None


class AgentElicitationResolved(Model):
    type: Literal["agent.elicitation.resolved"] = "agent.elicitation.resolved"
    item_id: str
    action: Literal["accept", "decline", "cancel"]
    by: str


class AgentRepair(Model):
    """The model's format was malformed at generated token ``at``; ``text`` is what no item holds."""

    type: Literal["agent.repair"] = "agent.repair"
    rule: str
    at: int
    text: str


class AgentSteered(Model):
    """What the person said in the middle of the turn; the next generation reads it. It comes after the
    results of the calls before it."""

    type: Literal["agent.steered"] = "agent.steered"
    text: str


class AgentNotice(Model):
    type: Literal["agent.notice"] = "agent.notice"
    level: Literal["info", "warning", "error"]
    message: str


class AgentStats(Model):
    """Measured speeds, just before the terminal event. Times in milliseconds."""

    type: Literal["agent.stats"] = "agent.stats"
    prefill_tokens: int
    cached_tokens: int
    output_tokens: int
    aside_input_tokens: int = 0
    """Of what was generated for the turn but is no part of the response, nor of its usage: summaries
    that made room, and what a tool's server asked the model to write."""
    aside_output_tokens: int = 0
    tokens_per_second: float
    time_to_first_token_ms: float
    tool_ms: float
    total_ms: float


Terminal = ResponseCompleted | ResponseIncomplete | ResponseFailed

AgentEvent = (
    AgentStart
    | AgentLoad
    | AgentPrefill
    | AgentReasoning
    | AgentToolProgress
    | AgentToolOutputDelta
    | AgentApprovalRequested
    | AgentApprovalResolved
    | AgentElicitationRequested
    | AgentElicitationResolved
    | AgentRepair
    | AgentSteered
    | AgentNotice
    | AgentStats
)

Event = Official | AgentEvent
