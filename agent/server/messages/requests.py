"""Requests to ``POST /v1/messages``, translated to the Responses API: the fields of
https://platform.claude.com/docs/en/api/messages, each done, refused or passed over by name
(``docs/messages.md``)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from agent.server.http.errors import invalid, missing, unsupported
from agent.server.input import schemas
from agent.server.input.translation import Translation
from agent.server.input.turn_options import INCLUDE_REASONING
from agent.server.messages.blocks import BlockReader, MessageBlock, MessageParam
from agent.server.responses.service import ResponseService

INCLUDE_SOURCES = "web_search_call.action.sources"
ATTRIBUTION = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n*")
"""A line of Claude Code's before its instructions, for Anthropic's accounting. It differs from request
to request: no prompt would begin like the one before."""
PARAM_NAMES = {
    "reasoning.max_tokens": "thinking.budget_tokens",
    "reasoning.effort": "output_config.effort",
    "text.format.schema": "output_config.format.schema",
    "max_output_tokens": "max_tokens",
    "instructions": "system",
    "stop": "stop_sequences",
    "input": "messages",
}
"""Parameters of the Responses API, and what they are here."""
FORWARDED_FIELDS = ("model", "temperature", "top_p", "top_k", "stream")
"""Fields that the Responses API has too."""
TEXT_FORMAT = {"type": "json_schema", "name": "output", "strict": True}
SERVER_TOOLS = {
    "web_search": "browser",
    "web_fetch": "browser",
    "code_execution": "code_interpreter",
}
"""Tools that Anthropic runs, without their dates, and the servers here that do the same."""


class Thinking(schemas.RequestModel):
    """Whether the model reasons, and with how many tokens at most."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(default=None, ge=0)
    display: Literal["summarized", "omitted"] | None = None


class OutputForm(schemas.RequestModel):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(schemas.RequestModel):
    """The effort of the reasoning and the form of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputForm | None = None


class MessagesTool(schemas.RequestModel):
    """A tool of the client's (``custom``), one of Anthropic's, or those of an MCP server."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    mcp_server_name: str | None = None
    default_config: dict[str, Any] | None = None
    configs: dict[str, dict[str, Any]] | None = None


class MessagesToolChoice(schemas.RequestModel):
    """Whether and what the model calls."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class McpServerParam(schemas.RequestModel):
    """An MCP server: one of the operator's, by its name, or the client's own."""

    name: str
    url: str | None = None
    authorization_token: str | None = Field(default=None, repr=False)


class MessagesRequest(schemas.RequestModel):
    """The body of ``POST /v1/messages``; a field that is None was not sent."""

    messages: list[MessageParam] = Field(min_length=1)
    model: str | None = None
    max_tokens: schemas.OutputLimit = None
    system: str | list[MessageBlock] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: MessagesToolChoice | None = None
    mcp_servers: list[McpServerParam] | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: schemas.TopK = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    cache_control: dict[str, Any] | None = None
    container: Any = None


class MessagesTranslation(Translation[MessagesRequest]):
    """A request for a message as one of the Responses API."""

    def __init__(self, value: dict[str, Any], service: ResponseService) -> None:
        self._service = service
        self._names: dict[str, str] = {}
        """Names of the messages and tools that input items and tools were made of, by their paths."""
        super().__init__(MessagesRequest, value, lenient=service.options.lenient)
        unknown = (name for name in value if name not in MessagesRequest.model_fields)
        self.request.origin.ignored += (*unknown,)

    def fields(self) -> dict[str, Any]:
        sent = self.sent
        if sent.container is not None and not self.lenient:
            raise unsupported("container", "A container that is kept")
        reader = BlockReader(sent.messages, self._service.token_memo, self)
        tools = dict(self._tools())
        self.prefill = reader.prefill
        for name, params in (("input", reader.params), ("tools", tools)):
            self._names |= {f"{name}[{index}]": param for index, param in enumerate(params)}
        config, choice = sent.output_config or OutputConfig(), sent.tool_choice
        form = config.format
        single = choice.disable_parallel_tool_use if choice is not None else None
        thinking = sent.thinking or Thinking(type="adaptive")
        budgets = {"enabled": thinking.budget_tokens, "disabled": 0}
        return {
            **{name: getattr(sent, name) for name in FORWARDED_FIELDS},
            "tool_choice": _tool_choice(choice, sent.tools or ()),
            # Not sent: as the model likes, for asking it for a second call takes time.
            "parallel_tool_calls": None if single is None else not single,
            "max_output_tokens": sent.max_tokens,
            "reasoning": {"effort": config.effort, "max_tokens": budgets.get(thinking.type)},
            "text": form and {"format": {**TEXT_FORMAT, "schema": form.schema_}},
            "stop": sent.stop_sequences,
            "include": [INCLUDE_REASONING, INCLUDE_SOURCES],
            "store": False,
            "instructions": self._instructions(),
            "input": reader.items,
            "tools": [*tools.values()],
        }

    def sent_name(self, param: str) -> str:
        if (match := re.match(r"(input|tools)\[\d+\]", param)) and match[0] in self._names:
            rest = param[match.end() :].replace(".parameters", ".input_schema")
            return self._names[match[0]] + (rest if match[1] == "tools" else "")
        return PARAM_NAMES.get(param, param)

    def _instructions(self) -> str | None:
        """The text of ``system``, without what is not for the model. Raises ApiError."""
        if (system := self.sent.system) is None:
            return None
        if isinstance(system, str):
            named: dict[str, str | None] = {"system": system}
        else:
            named = {f"system[{n}]": block.text for n, block in enumerate(system)}
        texts = []
        for name, text in named.items():
            if text is None:
                self.pass_over(name, missing(f"{name}.text"))
                continue
            text, removed = ATTRIBUTION.subn("", text)
            if removed:
                self.ignored.append(name)
            texts.append(text)
        return "\n\n".join(filter(None, texts))

    def _tools(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The tools and MCP servers, each with its path in the request. Raises ApiError."""
        toolsets: dict[str | None, list[str] | None] = {}
        for index, tool in enumerate(self.sent.tools or ()):
            param = f"tools[{index}]"
            if tool.type == "mcp_toolset":
                toolsets[tool.mcp_server_name] = _allowed(tool, param)
            elif (read := self._tool(tool, param)) is not None:
                yield param, read
        for index, server in enumerate(self.sent.mcp_servers or ()):
            read = {
                "type": "mcp",
                "server_label": server.name,
                "server_url": server.url,
                "authorization": server.authorization_token,
                "allowed_tools": toolsets.pop(server.name, None),
            }
            yield f"mcp_servers[{index}]", read
        for name in toolsets:
            raise invalid("mcp_servers", f"'mcp_servers' has no server called {str(name)[:80]!r}.")

    def _tool(self, tool: MessagesTool, param: str) -> dict[str, Any] | None:
        kind = tool.type or "custom"
        if kind == "custom":
            if tool.input_schema is None:
                raise missing(f"{param}.input_schema")
            return {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
                "strict": tool.strict or None,  # false asks for no check, not for none here
            }
        server = SERVER_TOOLS.get(base := re.sub(r"_\d{8}\Z", "", kind))
        if server is None or (self.lenient and server not in self._service.exposed_servers):
            self.pass_over(param, unsupported(f"{param}.type", f"A tool of type '{kind[:40]}'"))
            return None
        return {"type": "code_interpreter" if base == "code_execution" else "web_search"}


def _allowed(tool: MessagesTool, param: str) -> list[str] | None:
    """The tools of a server that a toolset allows; None: all. Raises ApiError."""
    configs = tool.configs or {}
    if tool.default_config is not None and tool.default_config.get("enabled") is False:
        return [name for name, config in configs.items() if config.get("enabled")]
    if denied := [name for name, config in configs.items() if config.get("enabled") is False]:
        # To offer what the client excludes would be worse than to refuse.
        feature = "Excluding single tools of a server (but for default_config.enabled = false)"
        raise unsupported(f"{param}.configs.{denied[0]}", feature)
    return None


def _tool_choice(choice: MessagesToolChoice | None, tools: Sequence[MessagesTool]) -> Any:
    match choice:
        case None:
            return None
        case MessagesToolChoice(type="any"):
            return "required"
        case MessagesToolChoice(type="tool", name=None):
            raise missing("tool_choice.name")
        case MessagesToolChoice(type="tool", name=name):
            kinds = {tool.name: tool.type or "custom" for tool in tools}
            if (kind := kinds.get(name, "custom")) == "custom":
                return {"type": "function", "name": name}
            is_python = kind.startswith("code_execution")
            return {"type": "code_interpreter" if is_python else "web_search"}
        case _:
            return choice.type
