"""Requests to ``POST /v1/chat/completions``, translated to the Responses API: the fields of
https://platform.openai.com/docs/api-reference/chat/create, each done or refused (``docs/chat.md``), and
``reasoning_content``, ``reasoning``, ``top_k``, ``min_p``, ``repeat_penalty`` of other servers."""

import re
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, StringConstraints

from agent.server.http.errors import invalid, missing, unsupported
from agent.server.input import schemas
from agent.server.input.items import newest_prompt
from agent.server.input.translation import Translation
from agent.server.input.turn_options import INCLUDE_LOGPROBS
from agent.server.responses.service import ResponseService
from agent.util.images import CANNOT_SEE

MAX_CHOICES = 16
"""Choices of one request; each is a turn of its own."""
SEED_COUNT = 2**32
FORWARDED_FIELDS = (
    "model", "temperature", "top_p", "top_k", "min_p", "stop", "metadata",
    "presence_penalty", "frequency_penalty", "repeat_penalty", "logit_bias", "safety_identifier",
    "prompt_cache_key", "top_logprobs", "stream", "parallel_tool_calls",
)  # fmt: skip
"""Fields that the Responses API has too."""
PARAM_NAMES = (
    ("input", "messages"),
    ("text.format.", "response_format.json_schema."),
    ("tool_choice.tools", "tool_choice.allowed_tools.tools"),
    ("reasoning.effort", "reasoning_effort"),
    ("reasoning.max_tokens", "thinking_budget_tokens"),
    ("text.verbosity", "verbosity"),
)
"""Beginnings of parameters in the Responses API, and what they are here."""
REFUSED_FIELDS: dict[str, tuple[Any, ...]] = {
    "functions": ("The older form of 'tools'", []),
    "function_call": ("The older form of 'tools' and 'tool_choice'", "none", "auto"),
    "audio": ("Audio output",),
    "modalities": ("An output other than text", [], ["text"]),
    "moderation": ("Moderation",),
}
"""Fields that no model here has: what they ask for, and the values that ask for nothing."""
UNSEEN_PARTS = {"image_url": "input_image", "input_audio": "input_audio", "file": "input_file"}
"""Replacements of unreadable parts in outputs of tools and in messages before the newest."""
REFUSED_PARTS = {
    "image_url": f"is an image, and {CANNOT_SEE}: send text",
    "input_audio": "is a recording, and this model cannot hear: send text",
    "file": "is a file, and this server reads no files: send its text",
}
"""The same, and the sentence that refuses them."""
TEXT_PARTS = {
    "text": "input_text", "refusal": "refusal", "input_text": "input_text",
    "output_text": "input_text",
}  # fmt: skip
"""Types of the other content parts, and what they become; the last two are the Responses API's own."""


class CalledFunction(schemas.RequestModel):
    """The function of a resent call, and its arguments in JSON."""

    name: str
    arguments: str


class CalledCustom(schemas.RequestModel):
    """The custom tool of a resent call, and its input."""

    name: str
    input: str


class ChatToolCall(schemas.RequestModel):
    """A call that the client sends back with its assistant message."""

    id: str
    function: CalledFunction | None = None
    custom: CalledCustom | None = None


class ChatContentPart(schemas.RequestModel):
    """``text`` or, of an assistant, ``refusal``; of a tool anything."""

    type: str
    text: str | None = None
    refusal: str | None = None


class ChatMessage(schemas.RequestModel):
    """A message; an assistant's may have reasoning and calls, a tool's answers the call of its id."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ChatContentPart] | None = None
    name: str | None = None
    """A user's name is put before the text; others are ignored."""
    refusal: str | None = None
    audio: Any = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """The same; of two different ones this is read."""
    tool_calls: list[ChatToolCall] | None = None
    function_call: Any = None
    tool_call_id: str | None = None


class ToolReference(schemas.RequestModel):
    """The name of a function or custom tool."""

    name: str


class AllowedChatTools(schemas.RequestModel):
    """The tools that may be called, each as ``{"type": "function", "function": {"name"}}``."""

    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, Any]]


class ChatToolChoice(schemas.RequestModel):
    """A choice among the tools; the flat forms of the Responses API are read too."""

    type: str
    function: ToolReference | None = None
    custom: ToolReference | None = None
    allowed_tools: AllowedChatTools | None = None
    name: str | None = None
    server_label: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, Any]] | None = None


class ResponseFormat(schemas.RequestModel):
    """The form of the answer; ``json_schema`` is an object with ``name``, ``schema``, ``strict``."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class StreamOptions(schemas.RequestModel):
    """Options of a stream: a last chunk with the usage."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class PromptCacheOptions(schemas.RequestModel):
    """Options of the prompt cache, which always keeps common prefixes."""

    mode: Literal["implicit", "explicit"] | None = None


class WebSearchOptions(schemas.RequestModel):
    """Asks for a web search before the answer."""

    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: Any = None


Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Identifier = Annotated[str, StringConstraints(max_length=1000)]


class ChatRequest(schemas.SamplingFields):
    """The body of ``POST /v1/chat/completions``; a field that is None was not sent."""

    messages: list[ChatMessage] = Field(min_length=1)
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | ChatToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: schemas.OutputLimit = None
    max_completion_tokens: schemas.OutputLimit = None
    response_format: ResponseFormat | None = None
    thinking_budget_tokens: schemas.ReasoningLimit = Field(
        default=None,
        validation_alias=AliasChoices(
            "thinking_budget_tokens", "reasoning_budget_tokens", "thinking_token_budget"
        ),
    )
    """``reasoning.max_tokens`` of the Responses API: llama-server's two names, and vLLM's."""
    reasoning_effort: schemas.Effort | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    seed: Seed | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    metadata: schemas.Metadata | None = None
    store: bool | None = None
    user: Identifier | None = None
    safety_identifier: Identifier | None = None
    prompt_cache_key: Identifier | None = None
    prompt_cache_retention: schemas.CacheRetention | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    audio: Any = None
    prediction: Any = None
    moderation: Any = None
    web_search_options: WebSearchOptions | None = None

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatTranslation(Translation[ChatRequest]):
    """A chat completion as a request of the Responses API, for each choice one."""

    def __init__(self, value: dict[str, Any], service: ResponseService) -> None:
        self._service = service
        super().__init__(ChatRequest, value, lenient=service.options.lenient)
        seed, count = self.sent.seed, self.sent.n or 1
        seeds = [None if seed is None else (seed + i) % SEED_COUNT for i in range(count)]
        self.requests = [self.request.model_copy(update={"seed": each}) for each in seeds]

    def fields(self) -> dict[str, Any]:
        chat = self.sent
        effort, budget = chat.reasoning_effort, chat.thinking_budget_tokens
        self._refuse()
        return {
            **{name: getattr(chat, name) for name in FORWARDED_FIELDS},
            "input": self._input_items(),
            "tools": _tools(chat),
            "tool_choice": _tool_choice(chat),
            "max_output_tokens": chat.max_completion_tokens or chat.max_tokens,
            "reasoning": {"effort": effort, "max_tokens": budget},
            "text": {"format": _text_format(chat.response_format), "verbosity": chat.verbosity},
            "include": [INCLUDE_LOGPROBS] if chat.logprobs else None,
            "store": False,
        }

    def sent_name(self, param: str) -> str:
        chat = self.sent
        for theirs, ours in PARAM_NAMES:
            if param.startswith(theirs):
                return ours if theirs == "input" else ours + param.removeprefix(theirs)
        if index := re.match(r"tools\[(\d+)\]", param):
            tool = dict(enumerate(chat.tools or ())).get(int(index[1]), {})
            kind, rest = tool.get("type"), param.removeprefix(index[0])
            return f"{index[0]}.{kind}{rest}" if isinstance(kind, str) and kind in tool else param
        if param == "max_output_tokens":
            return "max_tokens" if chat.max_completion_tokens is None else "max_completion_tokens"
        return param

    def _refuse(self) -> None:
        """Refuse what cannot be done, or pass it over. Raises ApiError."""
        chat = self.sent
        cache, search = chat.prompt_cache_options, chat.web_search_options
        refused = {
            param: feature
            for param, (feature, *harmless) in REFUSED_FIELDS.items()
            if getattr(chat, param) not in (None, *harmless)
        }
        if cache is not None and cache.mode == "explicit":
            refused["prompt_cache_options.mode"] = "Explicit caching of prompts"
        if search is not None and "browser" not in self._service.exposed_servers:
            refused["web_search_options"] = "Web search (it needs --tools browser)"
        if search is not None and search.user_location is not None:
            refused["web_search_options.user_location"] = "A place of the search"
        for param, feature in refused.items():
            self.pass_over(param, unsupported(param, feature))
        if chat.top_logprobs and not chat.logprobs:
            raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs': true.")

    def _input_items(self) -> list[dict[str, Any]]:
        messages = self.sent.messages
        newest = newest_prompt([message.role for message in messages])
        items: list[dict[str, Any]] = []
        for index, message in enumerate(messages):
            param = f"messages[{index}]"
            if message.audio is not None:
                self.pass_over(f"{param}.audio", unsupported(f"{param}.audio", "Audio"))
            if message.function_call is not None:
                where, older = f"{param}.function_call", "The older form of 'tool_calls'"
                self.pass_over(where, unsupported(where, older))
            is_result = message.role == "tool"
            is_newest = index >= newest or message.role in ("developer", "system")
            content = self._content(message, param, is_newest=is_newest and not is_result)
            if is_result:
                item = {"type": "function_call_output", "call_id": message.tool_call_id or ""}
                items.append({**item, "output": content})
            else:
                items += _message_items(message, index, content)
        return items

    def _content(
        self, message: ChatMessage, param: str, *, is_newest: bool
    ) -> str | list[dict[str, Any]]:
        """A message's content for the Responses API; a user's name comes first. ``is_newest``: what the
        model cannot read is refused. Raises ApiError."""
        name = f"{message.name}: " if message.role == "user" and message.name else ""
        if not isinstance(message.content, list):
            return name + (message.content or message.refusal or "")
        parts = [
            part
            for index, sent in enumerate(message.content)
            if (part := self._part(sent, f"{param}.content[{index}]", is_newest))
        ]
        first = next((part for part in parts if part["type"] == "input_text"), None)
        if name and first is not None:
            first["text"] = name + first["text"]
        return parts

    def _part(self, part: ChatContentPart, param: str, is_newest: bool) -> dict[str, Any] | None:
        if why := REFUSED_PARTS.get(part.type):
            if is_newest:
                self.pass_over(param, invalid(param, f"'{param}' {why}.", "unsupported_content"))
            return {**part.model_dump(), "type": UNSEEN_PARTS[part.type]}
        if (kind := TEXT_PARTS.get(part.type)) is None:
            message = f"'{param}.type' must be text or refusal."
            self.pass_over(param, invalid(f"{param}.type", message))
            return None
        field = "refusal" if kind == "refusal" else "text"
        if getattr(part, field) is None:
            raise missing(f"{param}.{field}")
        return {"type": kind, "text": part.text, "refusal": part.refusal}


def _message_items(
    message: ChatMessage, index: int, content: str | list[dict[str, Any]]
) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if reasoning := message.reasoning or message.reasoning_content:
        part = {"type": "reasoning_text", "text": reasoning}
        items.append({"type": "reasoning", "content": [part]})
    if content or message.role != "assistant":
        items.append({"type": "message", "role": message.role, "content": content})
    for number, call in enumerate(message.tool_calls or ()):
        if call.custom is not None:
            called = {"type": "custom_tool_call", **call.custom.model_dump()}
        elif call.function is not None:
            called = {"type": "function_call", **call.function.model_dump()}
        else:
            raise missing(f"messages[{index}].tool_calls[{number}].function")
        items.append({"call_id": call.id, **called})
    return items


def _tools(chat: ChatRequest) -> list[dict[str, Any]]:
    tools = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(chat.tools or ())]
    if (search := chat.web_search_options) is not None:
        tools.append({"type": "web_search", "search_context_size": search.search_context_size})
    return tools


def _tool(tool: dict[str, Any], param: str) -> dict[str, Any]:
    """A function or custom tool made flat; tools of the Responses API are accepted as they are."""
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        return tool
    flat = _reference(tool)
    if flat is tool and "name" not in tool:
        raise missing(f"{param}.{kind}")
    match flat.get("format"):
        case {"grammar": {**grammar}} if kind == "custom":
            return {**flat, "format": {"type": "grammar", **grammar}}
    return flat


def _tool_choice(chat: ChatRequest) -> Any:
    choice = chat.tool_choice
    if not isinstance(choice, ChatToolChoice):
        return choice
    if (allowed := choice.allowed_tools) is not None:
        tools = [_reference(tool) for tool in allowed.tools]
        return {"type": "allowed_tools", "mode": allowed.mode, "tools": tools}
    flat = _reference(choice.model_dump(exclude_none=True))
    if choice.type in ("function", "custom") and "name" not in flat:
        raise missing(f"tool_choice.{choice.type}")
    return flat


def _reference(tool: dict[str, Any]) -> dict[str, Any]:
    kind = tool.get("type")
    nested = tool.get(kind) if isinstance(kind, str) else None
    return {"type": kind, **nested} if isinstance(nested, dict) else tool


def _text_format(format: ResponseFormat | None) -> dict[str, Any]:
    if format is None:
        return {"type": "text"}
    if format.type == "json_schema":
        if format.json_schema is None:
            raise missing("response_format.json_schema")
        return {**format.json_schema, "type": "json_schema"}
    return {"type": format.type}
