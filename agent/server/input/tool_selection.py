"""Selects a response's tools: the client's functions, and the exposed tools that its request names."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent.engine.grammars import Grammar
from agent.formats.protocol import Format, FunctionTool
from agent.formats.recipients import PYTHON_TOOL
from agent.server.http.errors import invalid, unsupported
from agent.server.input import schemas
from agent.server.input.declared_tools import DeclaredTool
from agent.server.input.listed_items import redact_url
from agent.turn.options import HostedTools
from tools.types import Tool

log = logging.getLogger(__name__)

ALL_TOOLS = "*"
"""The name in ``allowed_tools`` that means all of a server's."""
HABITUAL_TOOLS = ("tool_search", "image_generation")
"""Types that clients (Codex) add for every model whose name they know; leaving them out is harmless."""


APPLY_PATCH = FunctionTool(
    "apply_patch",
    "Creates, changes or deletes a file. The diff of a new file has all its lines, each after a '+'."
    " That of a change has hunks: '@@', then the lines around the change after a blank, removed ones"
    " after a '-' and new ones after a '+'; that of a deletion is empty.",
    {
        "type": "object",
        "properties": {
            "type": {"enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string"},
            "diff": {"type": "string"},
        },
        "required": ["type", "path", "diff"],
    },
    kind="apply_patch",
)
"""The client's tool that changes files, as a function; the reference of its diffs is
https://developers.openai.com/api/docs/guides/tools-apply-patch."""


@dataclass(slots=True)
class SelectedTools:
    """The tools of one response."""

    functions: list[FunctionTool] = field(default_factory=list)
    """Functions and custom tools, which the client runs."""
    tools: list[Tool] = field(default_factory=list)
    """Tools of MCP servers and built-in ones, which run here."""
    servers: list[str] = field(default_factory=list)
    """Labels of the request's ``mcp`` tools; what these servers have is listed to the client once."""
    echo: list[dict[str, Any]] = field(default_factory=list)
    """The request's tools as the response repeats them: every key, no secret."""
    tool_choice: Literal["may", "must", "none"] = "may"
    hosted: HostedTools = field(default_factory=HostedTools)
    deferred: frozenset[str] = frozenset()
    """Labels of servers whose tools the model finds by a search."""
    declared_only: bool = False
    """Whether ``tool_choice`` named tools, so that no others are called."""
    excluded: frozenset[str] = frozenset()
    """Labels of servers that have tools, but none that ``allowed_tools`` lets through."""
    left_out: tuple[str, ...] = ()
    """Paths of these tools in the request."""
    unavailable: frozenset[str] = frozenset()
    """Types of tools in the request that cannot run here; they are not declared to the model."""

    def add(
        self, requested: schemas.RequestTool, param: str, exposed: Sequence[Tool], *, refuses: bool
    ) -> bool:
        """Add a tool of a request; false where there is none of its type here, unless the request
        ``refuses`` what this server lacks. ``exposed``: those that it may name. Raises ApiError."""
        match requested:
            case schemas.RequestFunction() | schemas.RequestCustom():
                self.functions.append(_function(requested))
            case schemas.RequestNamespace(name=name):
                self.functions += [_function(tool, name) for tool in requested.tools]
            case schemas.RequestMcp():
                self._add_server(requested, param, exposed)
            case schemas.RequestOther(type="tool_search", execution="client"):
                self.functions.append(_client_search(requested))
            case schemas.RequestOther(type="shell"):
                self._add_shell(requested, param, exposed, refuses)
            case schemas.RequestOther(type="apply_patch"):
                if refuses:
                    _check_options(requested, param)
                files = _tools_of_server(exposed, "files")
                if patch := [tool for tool in files if tool.name == "apply_patch"]:
                    self._select(patch)
                else:
                    self.functions.append(APPLY_PATCH)
            case schemas.RequestOther(type="code_interpreter"):
                self._add_python(requested, param, exposed, refuses)
            case schemas.RequestOther(type=kind) if kind.startswith("web_search"):
                self._add_browser(requested, param, exposed, refuses)
            case schemas.RequestOther(type=kind) if refuses and kind not in HABITUAL_TOOLS:
                raise unsupported(f"{param}.type", f"A tool of type '{kind[:40]}'")
            case schemas.RequestOther(type=kind):
                message = "%s: there is no tool of type %r here: it is left out"
                log.warning(message, param, kind[:40])
                self._leave_out(kind, param)
                return False
        return True

    def _add_server(
        self, requested: schemas.RequestMcp, param: str, exposed: Sequence[Tool]
    ) -> None:
        label = requested.server_label
        if label in self.servers:
            raise invalid(param, f"The server {label} is named twice.")
        self.servers.append(label)
        if requested.defer_loading:
            self.deferred |= {label}
        allowed = [tool for tool in exposed if _allowed(tool, requested)]
        self._select(allowed)
        if not allowed and _tools_of_server(exposed, label):
            self.excluded |= {label}
        asked_for = {(t.server, t.name) for t in allowed if _needs_approval(t, requested)}
        required = self.hosted.approval_required | asked_for
        self.hosted = replace(self.hosted, approval_required=required)

    def _add_python(
        self, requested: schemas.RequestOther, param: str, exposed: Sequence[Tool], refuses: bool
    ) -> None:
        if not (python := _tools_of_server(exposed, "code_interpreter")):
            message = "Python (the operator has not exposed it: --tools python)"
            raise unsupported(f"{param}.type", message)
        if refuses:
            _check_options(requested, param)
            _check_container(requested.container, param)
        self._select(python)
        self.hosted = replace(self.hosted, code_interpreter=True)

    def _add_shell(
        self, requested: schemas.RequestOther, param: str, exposed: Sequence[Tool], refuses: bool
    ) -> None:
        """Add the built-in shell where the operator exposes it, unless the request wants its own."""
        shell = _tools_of_server(exposed, "shell")
        environment = dict(requested.environment or {"type": None if shell else "local"})
        kind, skills = environment.pop("type", None), environment.pop("skills", None)
        if kind == "local":
            self.functions.append(_client_shell(skills))
        elif not shell:
            message = "A shell of this server (the operator has not exposed it: --tools shell)"
            raise unsupported(f"{param}.environment", message)
        else:
            self._select(shell)
            environment["skills"] = skills
        if refuses:
            _check_options(requested, param)
            for name, value in environment.items():
                if value:
                    raise unsupported(f"{param}.environment.{name}", f"environment.{name}")

    def _add_browser(
        self, requested: schemas.RequestOther, param: str, exposed: Sequence[Tool], refuses: bool
    ) -> None:
        browser = _tools_of_server(exposed, "browser")
        if requested.external_web_access is False:
            browser = []
        if not browser:
            # Clients send it by habit: without a browser it is not declared to the model.
            log.info("%s: a tool of type %s is not offered", param, requested.type[:40])
            self._leave_out(requested.type, param)
        elif refuses:
            _check_options(requested, param)
        self._select(browser)
        self.hosted = replace(self.hosted, web_search=bool(browser))

    def _select(self, tools: Sequence[Tool]) -> None:
        self.tools += [tool for tool in tools if tool not in self.tools]

    def _leave_out(self, kind: str, param: str) -> None:
        self.unavailable |= {kind}
        self.left_out += (param,)


def without_calls(
    request: schemas.CreateResponse, declared: list[DeclaredTool], *, lenient: bool
) -> tuple[schemas.CreateResponse, list[DeclaredTool]]:
    """The request to a model whose calls cannot be parsed, without tools. Those that clients add by
    habit stay: they are left out as always. Raises ApiError, unless ``lenient``."""
    habitual = ("web_search", *HABITUAL_TOOLS)
    called = [
        one
        for one in declared
        if not one.tool.type.startswith(habitual) or getattr(one.tool, "execution", "") == "client"
    ]
    if not called:
        return request, declared
    param = "tools" if called[0].is_own else called[0].param
    if not lenient:
        message = f"'{param}' cannot be used: this server cannot parse the calls of its model."
        raise invalid(param, message, "unsupported_parameter")
    chosen = ["tool_choice"] if request.tool_choice not in (None, "auto", "none") else []
    request.origin.ignored += (*map(request.origin.sent_name, (param, *chosen)),)
    return request.model_copy(update={"tool_choice": None}), []


def select_tools(
    request: schemas.CreateResponse, declared: Sequence[DeclaredTool], exposed: Sequence[Tool]
) -> SelectedTools:
    """Read a request's tools; ``exposed``: those that it may name. Raises ApiError."""
    sources = "web_search_call.action.sources" in (request.include or ())
    selected = SelectedTools(hosted=HostedTools(include_sources=sources))
    deferred, refuses = next(_deferred_params(declared), None), request.origin.refuses_unseen
    if deferred and refuses and not any(_is_search(one.tool) for one in declared):
        message = f"'{deferred}' needs a tool of type 'tool_search' that this server executes."
        raise invalid(deferred, message, "unsupported_parameter")
    for one in declared:
        is_search = deferred is not None and _is_search(one.tool)
        is_there = is_search or selected.add(one.tool, one.param, exposed, refuses=refuses)
        if one.is_own and is_there:
            selected.echo.append(_echo_tool(one.tool))
    functions = [function.model_name for function in selected.functions]
    _check_unique(functions)
    hosted = [tool.model_name for tool in selected.tools]
    _check_unique([name for name in functions if name != PYTHON_TOOL] + hosted)
    return selected


def apply_tool_choice(selected: SelectedTools, request: schemas.CreateResponse) -> SelectedTools:
    """Leave the tools that the request's ``tool_choice`` allows. Raises ApiError."""
    match request.tool_choice:
        case None | "auto":
            return selected
        case "none":
            if not (selected.functions or selected.tools):
                return selected
            return replace(selected, functions=[], tools=[], tool_choice="none")
        case "required":
            chosen = replace(selected, tool_choice="must")
        case schemas.ToolChoice(type="allowed_tools", mode=mode, tools=list(entries)):
            choices, left_out = {}, {*selected.unavailable}
            if not any(function.kind == "tool_search" for function in selected.functions):
                left_out.add("tool_search")
            for index, entry in enumerate(entries):
                choice = _tool_reference(entry, param := f"tool_choice.tools[{index}]")
                if choice.type not in left_out:
                    choices[param] = choice
            chosen = _restricted_to(choices, selected, "must" if mode == "required" else "may")
        case schemas.ToolChoice(type=kind) if (
            kind in selected.unavailable and not request.origin.refuses_unseen
        ):
            return replace(selected, left_out=(*selected.left_out, "tool_choice"))
        case choice:
            chosen = _restricted_to({"tool_choice": choice}, selected, "must")
    if chosen.tool_choice == "must" and not (chosen.functions or chosen.tools):
        raise invalid("tool_choice", "'tool_choice' demands a call, but there is no tool to call.")
    return chosen


def _restricted_to(
    choices: Mapping[str, schemas.ToolChoice],
    selected: SelectedTools,
    tool_choice: Literal["may", "must"],
) -> SelectedTools:
    """Leave the tools that the choices name; ``choices``: by their place in the request. Raises
    ApiError for one that names none."""
    functions: list[FunctionTool] = []
    tools: list[Tool] = []
    for param, choice in choices.items():
        named = [each for each in selected.functions if _is_function(each, choice)]
        hosted = [each for each in selected.tools if _is_tool(each, choice, selected)]
        has_server = choice.server_label in selected.servers and choice.name is None
        if not named and not hosted and not (choice.type == "mcp" and has_server):
            raise invalid(param, f"'{param}' names no tool of this request.")
        functions += named
        tools += hosted
    return replace(
        selected,
        functions=[function for function in selected.functions if function in functions],
        tools=[tool for tool in selected.tools if tool in tools],
        tool_choice=tool_choice,
        declared_only=True,
    )


def _tool_reference(entry: dict[str, Any], param: str) -> schemas.ToolChoice:
    try:
        return schemas.ToolChoice.model_validate(entry, extra="ignore")
    except ValueError:
        raise invalid(param, f"'{param}' is not a reference to a tool.") from None


def _is_function(function: FunctionTool, choice: schemas.ToolChoice) -> bool:
    if choice.type == "namespace":
        return choice.name == function.namespace
    if function.kind != "function":
        return choice.type == function.kind
    kind = "custom" if function.custom else "function"
    return (choice.type, choice.name) == (kind, function.name)


def _is_tool(tool: Tool, choice: schemas.ToolChoice, selected: SelectedTools) -> bool:
    match choice.type:
        case "mcp":
            is_server = tool.server == choice.server_label and tool.server in selected.servers
            return is_server and choice.name in (None, tool.name)
        case "shell":
            return tool.server == "shell"
        case "apply_patch":
            return (tool.server, tool.name) == ("files", "apply_patch")
        case "code_interpreter":
            return selected.hosted.code_interpreter and tool.server == "code_interpreter"
        case kind:
            has_search = kind.startswith("web_search") and selected.hosted.web_search
            return has_search and tool.server == "browser"


def _check_options(tool: schemas.RequestOther, param: str) -> None:
    """Refuse options that nothing here does; ``search_context_size`` is a hint. Raises ApiError."""
    for name, value in (tool.model_extra or {}).items():
        if value not in (None, [], {}, ["direct"] if name == "allowed_callers" else "medium"):
            raise unsupported(f"{param}.{name}", f"{name} = {str(value)[:40]}")


def _check_container(container: object, param: str) -> None:
    """Refuse a container but for one of the conversation's own. Raises ApiError."""
    match container:
        case None | str():
            return
        case {"type": "auto", **options}:
            for name, value in options.items():
                if value:
                    raise unsupported(f"{param}.container.{name}", f"container.{name}")
        case _:
            raise invalid(f"{param}.container", '\'container\' must be {"type": "auto"}.')


def _is_search(tool: schemas.RequestTool) -> bool:
    """Whether it is a search for tools that this server runs."""
    match tool:
        case schemas.RequestOther(type="tool_search", execution=execution):
            return execution != "client"
    return False


def _deferred_params(declared: Iterable[DeclaredTool]) -> Iterator[str]:
    for one in declared:
        if isinstance(one.tool, schemas.RequestNamespace):
            tools = enumerate(one.tool.tools)
            parts = (DeclaredTool(f"{one.param}.tools[{n}]", tool) for n, tool in tools)
            yield from _deferred_params(parts)
        elif getattr(one.tool, "defer_loading", None):
            yield f"{one.param}.defer_loading"


def _function(
    tool: schemas.RequestFunction | schemas.RequestCustom, namespace: str | None = None
) -> FunctionTool:
    """The tool as the model sees it; a custom one is a function with one string, without JSON."""
    if isinstance(tool, schemas.RequestFunction):
        return FunctionTool(
            tool.name,
            tool.description or "",
            tool.parameters or {},  # none: it takes none, as with OpenAI
            namespace=namespace,
            constrained=tool.strict is not False,
            strict=tool.strict is True,
            deferred=tool.defer_loading is True,
        )
    description, grammar = tool.description or "", None
    if isinstance(tool.format, schemas.GrammarForm):
        grammar = Grammar(tool.format.syntax, tool.format.definition)
        description += f"\n\nThe input has this form ({grammar.syntax}):\n{grammar.text}"
    return FunctionTool(
        tool.name,
        f"{description}\n\nWrite the input itself, as plain text.".strip(),
        {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        namespace=namespace,
        constrained=False,
        strict=grammar is not None,
        custom=True,
        grammar=grammar,
        deferred=tool.defer_loading is True,
    )


def _client_search(tool: schemas.RequestOther) -> FunctionTool:
    """The client's own search for tools, as a function."""
    description = tool.description or "Finds further tools; those that it finds can then be called."
    query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    return FunctionTool("tool_search", description, tool.parameters or query, kind="tool_search")


def _client_shell(skills: object) -> FunctionTool:
    """The client's shell, as a function; ``skills``: those of its environment."""
    description = (
        "Runs commands in a shell, one after the other, and returns what each prints and its exit"
        " code."
    )
    listed = skills if isinstance(skills, list) else []
    known = [skill for skill in listed if isinstance(skill, dict)]
    if known:
        description += "\nSkills, with instructions in SKILL.md of their folders:"
    for skill in known:
        name, path, about = (skill.get(key) for key in ("name", "path", "description"))
        description += f"\n- {name} ({path}): {about}"
    limit = {"type": "integer", "minimum": 1}
    properties = {
        "commands": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "timeout_ms": limit,
        "max_output_length": limit,
    }
    schema = {"type": "object", "properties": properties, "required": ["commands"]}
    return FunctionTool("shell", description, schema, kind="shell")


def describe_tools(form: Format, tools: Sequence[schemas.RequestTool]) -> str:
    """Declare functions in a result as a search does."""
    selected = SelectedTools()
    for tool in tools:
        selected.add(tool, "", (), refuses=False)
    return form.describe_functions(selected.functions)


def _check_unique(names: Sequence[str]) -> None:
    """Raises ApiError when two tools have the same name: the model could not tell them apart."""
    duplicate = next((name for name, number in Counter(names).items() if number > 1), None)
    if duplicate is not None:
        raise invalid("tools", f"Two tools of this request are called {duplicate}.")


def _tools_of_server(tools: Sequence[Tool], server: str) -> list[Tool]:
    return [tool for tool in tools if tool.server == server]


def _needs_approval(tool: Tool, requested: schemas.RequestMcp) -> bool:
    match requested.require_approval:
        case None | "never":
            return False
        case "always":
            return True
        case schemas.ApprovalFilter(always=always, never=never):
            if never is not None and _matches_filter(tool, never):
                return False
            return always is None or _matches_filter(tool, always)


def _allowed(tool: Tool, requested: schemas.RequestMcp) -> bool:
    allowed = requested.allowed_tools
    if isinstance(allowed, list):
        allowed = schemas.AllowedTools(tool_names=allowed)
    is_server = tool.server == requested.server_label
    return is_server and (allowed is None or _matches_filter(tool, allowed))


def _matches_filter(tool: Tool, filter: schemas.AllowedTools) -> bool:
    names, read_only = filter.tool_names, filter.read_only
    return (names is None or tool.name in names or ALL_TOOLS in names) and (
        read_only is None or tool.read_only == read_only
    )


def _echo_tool(tool: schemas.RequestTool) -> dict[str, Any]:
    sparse = isinstance(tool, schemas.RequestCustom | schemas.RequestOther)
    echo = tool.model_dump(exclude_none=sparse)
    if isinstance(tool, schemas.RequestMcp):
        echo["server_url"] = redact_url(tool.server_url)
    return echo
