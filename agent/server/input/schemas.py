"""Pydantic models of requests to ``/v1/responses``. Other fields are refused (`ConfigModel`), except in
input items, where they are passed over. The fields are those of
https://platform.openai.com/docs/api-reference/responses/create, and ``top_k``, ``min_p``, ``seed``,
``presence_penalty``, ``frequency_penalty``, ``repeat_penalty``, ``logit_bias``, ``stop`` and
``enable_response_messages`` of llama.cpp's and vLLM's servers."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    StringConstraints,
    Tag,
    model_validator,
)

from agent.server.http.errors import FOREIGN_ITEMS, FOREIGN_TAG
from agent.server.http.list_page import Includable

DirectCallers = list[Literal["direct"]]
"""Who may call a tool: only the model itself."""
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,128}$")]


class RequestModel(BaseModel):
    """Base of the models; ``null`` means the same as an absent field wherever there is a default."""

    model_config = ConfigDict(extra="ignore", strict=True, protected_namespaces=())


class ConfigModel(RequestModel):
    """Base of the models whose unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _drop_null(cls, value: Any) -> Any:
        """Drop unknown fields that are null or an empty list: they ask for nothing."""
        if not isinstance(value, dict):
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {
            name: part for name, part in value.items() if part not in (None, []) or name in known
        }


def _replaces_no_limit(value: Any) -> BeforeValidator:
    """Read -1 as ``value``: "no limit", as clients of llama.cpp's and vLLM's servers send it."""
    return BeforeValidator(lambda sent: value if type(sent) is int and sent == -1 else sent)


OutputLimit = Annotated[Annotated[int, Field(ge=1)] | None, _replaces_no_limit(None)]
"""Tokens of an answer; None: as many as fit."""
ReasoningLimit = Annotated[Annotated[int, Field(ge=0)] | None, _replaces_no_limit(None)]
"""Tokens of the reasoning before a call or the answer; None: no limit."""
TopK = Annotated[Annotated[int, Field(ge=0)] | None, _replaces_no_limit(0)]
"""Sample from the k most likely tokens; 0: all."""
TokenId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,7}$")]
LogitBias = Annotated[float, Field(ge=-100, le=100)]


class SamplingFields(RequestModel):
    """The sampling of tokens, as in the requests of all three APIs."""

    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: TopK = None
    min_p: float | None = Field(default=None, ge=0, le=1)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repeat_penalty: float | None = Field(default=None, ge=0.1, le=10)
    logit_bias: dict[TokenId, LogitBias] | None = Field(default=None, max_length=1024)
    stop: str | list[str] | None = None


# --- tools ---


class RequestFunction(ConfigModel):
    """A tool that the client runs: a function with a JSON Schema of its arguments."""

    type: Literal["function"]
    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    allowed_callers: DirectCallers | None = Field(default=None, exclude=True)
    defer_loading: bool | None = Field(default=None, exclude_if=operator.not_)


class TextForm(ConfigModel):
    """Any text."""

    type: Literal["text"]


class GrammarForm(ConfigModel):
    """A grammar of a custom tool's input."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


class RequestCustom(ConfigModel):
    """A tool that the client runs: its input is a text."""

    type: Literal["custom"]
    name: ToolName
    description: str | None = None
    format: TextForm | GrammarForm | None = Field(default=None, discriminator="type")
    allowed_callers: DirectCallers | None = Field(default=None, exclude=True)
    defer_loading: bool | None = Field(default=None, exclude_if=operator.not_)


class RequestNamespace(ConfigModel):
    """A named group of functions and custom tools."""

    type: Literal["namespace"]
    name: ToolName
    description: str = ""
    tools: list[Annotated[RequestFunction | RequestCustom, Field(discriminator="type")]]


class AllowedTools(ConfigModel):
    """A filter of a server's tools; a tool has to meet both conditions."""

    tool_names: list[str] | None = None
    read_only: bool | None = None


class ApprovalFilter(ConfigModel):
    """Which calls need the client's approval: those of ``always``, or all but those of ``never``."""

    always: AllowedTools | None = None
    never: AllowedTools | None = None


class RequestMcp(ConfigModel):
    """The tools of an MCP server. ``headers`` and ``authorization`` are secrets: they are sent to that
    server only, and appear in no response, log or file."""

    type: Literal["mcp"]
    server_label: str = Field(min_length=1, max_length=256)
    server_url: str | None = None
    connector_id: str | None = None
    server_description: str | None = None
    headers: Any = Field(default=None, exclude=True, repr=False)
    authorization: Any = Field(default=None, exclude=True, repr=False)
    allowed_tools: list[str] | AllowedTools | None = None
    require_approval: Literal["always", "never"] | ApprovalFilter | None = None
    allowed_callers: DirectCallers | None = Field(default=None, exclude=True)
    defer_loading: bool | None = Field(default=None, exclude_if=operator.not_)


KNOWN_TOOLS = ("function", "custom", "namespace", "mcp")


class RequestOther(RequestModel):
    """Any other tool of OpenAI's, of which some options are read; `tool_selection` refuses the others
    where it offers the tool."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(json_schema_extra={"not": {"enum": [*KNOWN_TOOLS]}})
    container: Any = None
    external_web_access: bool | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None
    execution: Literal["server", "client"] | None = None
    environment: dict[str, Any] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


def _tool_tag(tool: object) -> str | None:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    if not isinstance(kind, str):
        return "other" if isinstance(tool, dict) else None
    return kind if kind in KNOWN_TOOLS else "other"


RequestTool = Annotated[
    Annotated[RequestFunction, Tag("function")]
    | Annotated[RequestCustom, Tag("custom")]
    | Annotated[RequestNamespace, Tag("namespace")]
    | Annotated[RequestMcp, Tag("mcp")]
    | Annotated[RequestOther, Tag("other")],
    Discriminator(_tool_tag),
]


class ToolChoice(ConfigModel):
    """A choice among the tools: ``{"type": "function", "name"}``, ``{"type": "mcp", "server_label",
    "name"?}`` or ``{"type": "allowed_tools", "mode", "tools"}``."""

    type: str
    name: str | None = None
    server_label: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, Any]] | None = None


# --- settings that an input item may change ---


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class RequestReasoning(ConfigModel):
    """Effort and summary of the reasoning; ``generate_summary`` is the older name of ``summary``.
    Reasoning of finished turns is never read again, whatever ``context`` says."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard"] | None = None
    max_tokens: int | None = Field(default=None, ge=0)
    """The most tokens of reasoning before a call or the answer, as OpenRouter's API has it."""


class TextFormat(ConfigModel):
    """The form of the answer; ``schema`` with type ``json_schema``."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class RequestText(ConfigModel):
    """The form of the answer, and how long it should be."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


# --- input items ---


class ContentPart(RequestModel):
    """A content part of a message: a text, or a file or refusal in its place."""

    type: str
    text: str | None = None
    refusal: str | None = None
    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None
    file_url: str | None = None


class InputMessage(RequestModel):
    """A message. A user's of the ``phase`` commentary does not end the turn that it comes in."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[ContentPart]
    phase: Literal["commentary", "final_answer"] | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    """``in_progress``: the model continues an assistant's message that is the last item."""


class InputReasoning(RequestModel):
    """A reasoning item: its text, as it is or as a token, and its summary."""

    content: list[ContentPart] | None = None
    encrypted_content: str | None = None
    summary: list[ContentPart] | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    """``in_progress``: the model continues it if it is the last item."""


class InputFunctionCall(RequestModel):
    """A call of a function that the client runs; ``arguments`` is JSON."""

    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class InputFunctionCallOutput(RequestModel):
    """The output of a function or of a custom tool."""

    type: Literal["function_call_output", "custom_tool_call_output"] = "function_call_output"
    call_id: str
    output: str | list[ContentPart]


class InputCustomToolCall(RequestModel):
    """A call of a custom tool; ``input`` is any text."""

    call_id: str
    name: str
    namespace: str | None = None
    input: str


class InputMcpCall(RequestModel):
    """A call that an MCP server ran for an earlier response, with its result."""

    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None


class InputApprovalRequest(RequestModel):
    """A call that waited for the client's approval."""

    id: str
    server_label: str
    name: str
    arguments: str


class InputApprovalResponse(RequestModel):
    """The client's answer to an approval request."""

    approval_request_id: str
    approve: bool
    reason: str | None = None


class InputMcpListTools(RequestModel):
    """The list of a server's tools, which needs not be sent to this client again."""

    server_label: str


class InputCodeInterpreterCall(RequestModel):
    """Python code that ran for an earlier response, with its outputs."""

    code: str | None = None
    outputs: list[dict[str, Any]] | None = None


class InputWebSearchCall(RequestModel):
    """A web search; its results are in the message after it, so its fields are not read."""


class InputCompaction(RequestModel):
    """A summary of the items before it: this server's (``POST /v1/responses/compact``), or another's.

    The other types are those of Codex; what is only a mark has no content.
    """

    type: Literal["compaction", "compaction_summary", "context_compaction"]
    encrypted_content: str | None = None


class InputCompactionTrigger(RequestModel):
    """The last item of an input that is summarised, not answered."""


class InputAdditionalTools(RequestModel):
    """Tools in addition to those of the request, from this response on."""

    tools: list[RequestTool]


class ReasoningUpdate(ConfigModel):
    """The effort from this response on."""

    effort: Effort | None = None


class TextUpdate(ConfigModel):
    """The form of the answers from this response on."""

    format: TextFormat


class InputConfigurationUpdate(RequestModel):
    """Settings from this response on, in place of those of the request and of earlier updates."""

    reasoning: ReasoningUpdate | None = None
    text: TextUpdate | None = None


class InputForeignItem(RequestModel):
    """A call of a tool that this server does not have, or its output: another server's history.

    `foreign_items` reads its fields, whatever they are.
    """

    type: str
    id: str | None = None
    call_id: str | None = None
    action: Any = None
    actions: Any = None
    execution: Any = None
    arguments: Any = None
    code: Any = None
    error: Any = None
    operation: Any = None
    output: Any = None
    queries: Any = None
    result: Any = None
    results: Any = None
    revised_prompt: Any = None
    status: Any = None
    tools: Any = None


class ItemReference(RequestModel):
    """An item of an earlier response, named by its id."""

    id: str


def _item_type(item: object) -> str | None:
    """Without a type, ``{role, content}`` is a message and ``{id}`` a reference."""
    if not isinstance(item, dict):
        return None
    if (kind := item.get("type")) is None:
        return "message" if "role" in item else "item_reference" if "id" in item else None
    if not isinstance(kind, str):
        return None
    if kind in ("compaction_summary", "context_compaction"):
        return "compaction"
    return FOREIGN_TAG if kind in FOREIGN_ITEMS else kind


InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputReasoning, Tag("reasoning")]
    | Annotated[InputFunctionCall, Tag("function_call")]
    | Annotated[InputFunctionCallOutput, Tag("function_call_output")]
    | Annotated[InputCustomToolCall, Tag("custom_tool_call")]
    | Annotated[InputFunctionCallOutput, Tag("custom_tool_call_output")]
    | Annotated[InputMcpCall, Tag("mcp_call")]
    | Annotated[InputMcpListTools, Tag("mcp_list_tools")]
    | Annotated[InputApprovalRequest, Tag("mcp_approval_request")]
    | Annotated[InputApprovalResponse, Tag("mcp_approval_response")]
    | Annotated[InputCodeInterpreterCall, Tag("code_interpreter_call")]
    | Annotated[InputWebSearchCall, Tag("web_search_call")]
    | Annotated[InputCompaction, Tag("compaction")]
    | Annotated[InputCompactionTrigger, Tag("compaction_trigger")]
    | Annotated[InputAdditionalTools, Tag("additional_tools")]
    | Annotated[InputConfigurationUpdate, Tag("configuration_update")]
    | Annotated[InputForeignItem, Tag(FOREIGN_TAG)]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(_item_type),
]
ITEM_MODELS: dict[str, type[RequestModel]] = {
    kind: get_args(part)[0]
    for part in get_args(get_args(InputItem)[0])
    for tag in [part.__metadata__[0].tag]
    for kind in (FOREIGN_ITEMS if tag == FOREIGN_TAG else [tag])
}


# --- the requests ---


class RequestStreamOptions(ConfigModel):
    """Options of a stream: its deltas are never padded."""

    include_obfuscation: bool | None = None


class BackgroundOptions(ConfigModel):
    """Options of a background response: it begins at once."""

    completion_window: Literal["soonest"] | None = None


class RequestPromptCache(ConfigModel):
    """Options of the prompt cache: it keeps every prompt."""

    mode: Literal["implicit"] | None = None


class ContextManagement(ConfigModel):
    """Compaction in the course of a response, before a prompt of more tokens than the threshold."""

    type: Literal["compaction"]
    compact_threshold: int | None = Field(default=None, ge=1000)


CacheRetention = Annotated[
    Literal["in_memory", "24h"],
    BeforeValidator(lambda value: "in_memory" if value == "in-memory" else value),
]
"""Retention of a cached prompt; OpenAI's older libraries write ``in-memory``."""
MetadataKey = Annotated[str, StringConstraints(max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)]


class ConversationParam(ConfigModel):
    """The conversation that a response extends."""

    id: str


@dataclass(slots=True)
class RequestOrigin:
    """The body that a request was made from, and passed over fields."""

    sent_input: str | list[dict[str, Any]] = ""
    """The input as it was sent, with fields that the models do not have."""
    sent_bytes: int = 0
    """Length of the body; 0 for a request that was made from another one."""
    refuses_unseen: bool = False
    """Whether what this server lacks is an error, not left out with a word to the model."""
    ignored: tuple[str, ...] = ()
    """Paths of the fields that are passed over."""
    dropped: tuple[str, ...] = ()
    """Those of them that this request lacks."""
    sent_name: Callable[[str], str] = str
    """Returns the name that a parameter has in the API that the body was sent to."""
    ends_at_cut_call: bool = False
    """Whether a call that the model cut off ends the answer; a chat's chunks take nothing back."""


class CreateResponse(SamplingFields, ConfigModel):
    """The body of ``POST /v1/responses``; a field that is None was not sent."""

    model: str | None = None
    input: str | list[InputItem] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[RequestTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: OutputLimit = None
    """From 16 on, but for an empty input (`agent.server.input.parsing`)."""
    max_tool_calls: int | None = Field(default=None, ge=1)
    reasoning: RequestReasoning | None = None
    text: RequestText | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    include: list[Includable] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[ContextManagement] | None = None
    metadata: Metadata | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    enable_response_messages: bool | None = None
    conversation: str | ConversationParam | None = None
    safety_identifier: str | None = Field(default=None, max_length=128)
    prompt_cache_key: str | None = None
    prompt_cache_retention: CacheRetention | None = None
    prompt_cache_options: RequestPromptCache | None = None
    service_tier: (
        Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None
    ) = None
    stream_options: RequestStreamOptions | None = None
    background_options: BackgroundOptions | None = None
    user: str | None = None
    client_metadata: dict[str, Any] | None = None
    """Codex's description of itself."""
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    _origin: RequestOrigin = PrivateAttr(default_factory=RequestOrigin)

    @property
    def origin(self) -> RequestOrigin:
        return self._origin

    @property
    def conversation_id(self) -> str | None:
        named = self.conversation
        return named.id if isinstance(named, ConversationParam) else named


class CreateConversation(RequestModel):
    """The body of ``POST /v1/conversations``."""

    items: list[InputItem] | None = None
    metadata: Metadata | None = None


class UpdateConversation(RequestModel):
    """The body of ``POST /v1/conversations/{id}``."""

    metadata: Metadata | None


class CreateItems(RequestModel):
    """The body of ``POST /v1/conversations/{id}/items``."""

    items: list[InputItem]
