"""The fields of ``POST /v1/responses``. Unknown fields are ignored, wrong types refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    StringConstraints,
    Tag,
)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,128}$")]


class Wire(BaseModel):
    """What a client sent; ``null`` is as good as absent wherever a default is."""

    model_config = ConfigDict(extra="ignore", strict=True, protected_namespaces=())


# --- input items ---


class Part(Wire):
    """A piece of a message: its text, or what stands for it."""

    type: str
    text: str | None = None
    refusal: str | None = None
    filename: str | None = None


class InputMessage(Wire):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Part]
    phase: Literal["commentary", "final_answer"] | None = None


class InputReasoning(Wire):
    content: list[Part] | None = None


class InputFunctionCall(Wire):
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str


class InputFunctionCallOutput(Wire):
    call_id: str
    output: str | list[Part]


class InputCustomToolCall(Wire):
    call_id: str
    name: str
    namespace: str | None = None
    input: str


class InputMcpCall(Wire):
    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: Any = None
    approval_request_id: str | None = None


class InputApprovalRequest(Wire):
    """A call that waited."""

    id: str
    server_label: str
    name: str
    arguments: str


class InputApprovalResponse(Wire):
    """What became of it."""

    approval_request_id: str
    approve: bool
    reason: str | None = None


class InputMcpListTools(Wire):
    server_label: str


class InputCodeInterpreterCall(Wire):
    code: str | None = None
    outputs: list[dict[str, Any]] | None = None


class InputWebSearchCall(Wire):
    """What was searched; its finding stands in the message that followed, so it is left out."""


class InputCompaction(Wire):
    """A summary that this server made of what was said before."""

    type: Literal["compaction"]
    encrypted_content: str


class ItemReference(Wire):
    id: str


def _kind(item: object) -> str | None:
    """An item's type; bare ``{role, content}`` is a message, bare ``{id}`` a reference."""
    if isinstance(item, BaseModel):
        return next(tag for tag, model in ITEMS.items() if isinstance(item, model))
    if not isinstance(item, dict):
        return None
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference" if "id" in item else None
    return kind if isinstance(kind, str) else None


ITEMS: dict[str, type[Wire]] = {
    "message": InputMessage,
    "reasoning": InputReasoning,
    "function_call": InputFunctionCall,
    "function_call_output": InputFunctionCallOutput,
    "custom_tool_call": InputCustomToolCall,
    "mcp_call": InputMcpCall,
    "mcp_list_tools": InputMcpListTools,
    "mcp_approval_request": InputApprovalRequest,
    "mcp_approval_response": InputApprovalResponse,
    "code_interpreter_call": InputCodeInterpreterCall,
    "web_search_call": InputWebSearchCall,
    "compaction": InputCompaction,
    "item_reference": ItemReference,
}
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
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(_kind),
]


# --- tools ---


class RequestFunction(Wire):
    """A function that the client runs."""

    type: Literal["function"]
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class TextForm(Wire):
    type: Literal["text"]


class GrammarForm(Wire):
    """The form of a custom tool's input."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


class RequestCustom(Wire):
    """A tool that the client runs, whose input is a text."""

    type: Literal["custom"]
    name: Name
    description: str | None = None
    format: TextForm | GrammarForm | None = Field(default=None, discriminator="type")


class RequestNamespace(Wire):
    """A named group of functions."""

    type: Literal["namespace"]
    name: Name
    description: str = ""
    tools: list[RequestFunction]


class AllowedTools(Wire):
    """Which tools of a server; both conditions hold together."""

    tool_names: list[str] | None = None
    read_only: bool | None = None


class ApprovalFilter(Wire):
    """Which calls wait for the client's word: those of ``always``, or all but those of ``never``."""

    always: AllowedTools | None = None
    never: AllowedTools | None = None


class RequestMcp(Wire):
    """An MCP server's tools. ``headers`` and ``authorization`` are secrets: they go to the server
    that the request brings, and nowhere else."""

    type: Literal["mcp"]
    server_label: str = Field(min_length=1, max_length=256)
    server_url: str | None = None
    server_description: str | None = None
    headers: Any = Field(default=None, exclude=True, repr=False)
    authorization: Any = Field(default=None, exclude=True, repr=False)
    allowed_tools: list[str] | AllowedTools | None = None
    require_approval: Literal["always", "never"] | ApprovalFilter | None = None


_KNOWN_TOOLS = ("function", "custom", "namespace", "mcp")


class RequestOther(Wire):
    """A kind of tool that is known by its name only."""

    type: str = Field(json_schema_extra={"not": {"enum": [*_KNOWN_TOOLS]}})
    container: Any = None
    external_web_access: bool | None = None
    search_context_size: Literal["low", "medium", "high"] | None = None


def _tool_kind(tool: object) -> str | None:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    if not isinstance(kind, str):
        return "other" if isinstance(tool, dict) else None
    return kind if kind in _KNOWN_TOOLS else "other"


RequestTool = Annotated[
    Annotated[RequestFunction, Tag("function")]
    | Annotated[RequestCustom, Tag("custom")]
    | Annotated[RequestNamespace, Tag("namespace")]
    | Annotated[RequestMcp, Tag("mcp")]
    | Annotated[RequestOther, Tag("other")],
    Discriminator(_tool_kind),
]


class ToolChoice(Wire):
    """``{"type": "function", "name"}``, ``{"type": "mcp", "server_label", "name"?}`` or
    ``{"type": "allowed_tools", "mode", "tools"}``."""

    type: str
    name: str | None = None
    server_label: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, Any]] | None = None


# --- the request ---


class RequestReasoning(Wire):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class TextFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class RequestText(Wire):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


MetadataKey = Annotated[str, StringConstraints(max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


TokenId = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,7}$")]
Bias = Annotated[float, Field(ge=-100, le=100)]


class CreateResponse(Wire):
    """One request; what is None was not said."""

    model: str | None = None
    input: str | list[InputItem] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[RequestTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    max_tool_calls: int | None = Field(default=None, ge=0)
    reasoning: RequestReasoning | None = None
    text: RequestText | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    include: list[str] | None = None
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    repeat_penalty: float | None = Field(default=None, ge=0.1, le=10)
    logit_bias: dict[TokenId, Bias] | None = Field(default=None, max_length=1024)
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(default=None, max_length=16)
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    enable_response_messages: bool | None = None
    conversation: Any = None
    prompt: Any = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**32)
    _sent: str | list[dict[str, Any]] = PrivateAttr(default="")
    _sent_bytes: int = PrivateAttr(default=0)

    @property
    def sent_bytes(self) -> int:
        """How long the whole body was."""
        return self._sent_bytes

    @property
    def sent(self) -> str | list[dict[str, Any]]:
        """The input as it came, with the fields that are not read."""
        return self._sent

    def came(self, value: dict[str, Any], size: int) -> None:
        """``value``: what it was read from, of so many bytes."""
        self._sent, self._sent_bytes = value.get("input") or "", size
