"""Which tools a request names: those that the client runs, and ours that it may use."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from agent.engine.grammars import Grammar
from agent.formats.protocol import FunctionTool
from agent.server.errors import invalid, unsupported
from agent.server.schemas import (
    AllowedTools,
    ApprovalFilter,
    CreateResponse,
    GrammarForm,
    RequestCustom,
    RequestFunction,
    RequestMcp,
    RequestNamespace,
    RequestOther,
    RequestTool,
    ToolChoice,
)
from agent.turn.call_writers import Hosted
from tools.types import Tool

log = logging.getLogger(__name__)

ANYTHING: dict[str, Any] = {"type": "object", "properties": {}}
"""The parameters of a function that declares none."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of one response."""

    functions: tuple[FunctionTool, ...] = ()
    tools: tuple[Tool, ...] = ()
    servers: tuple[str, ...] = ()
    """Servers that the request named; their tools are listed to the client once."""
    echo: list[dict[str, Any]] = field(default_factory=list)
    """The request's tools as the response shows them: every key, no secret."""
    calls: Literal["may", "must", "none"] = "may"
    hosted: Hosted = field(default_factory=Hosted)
    exact: bool = False
    """The request chose among its tools: nothing else is called."""
    absent: frozenset[str] = frozenset()
    """Kinds of tools that the client offers and nobody here can run; the model is told of none."""


def offer(request: CreateResponse, servers: Sequence[str], tools: Sequence[Tool]) -> Offer:
    """Read the request's tools. ``servers`` and ``tools``: what the operator exposes.

    Raises ApiError for what is wrong or not supported.
    """
    functions: list[FunctionTool] = []
    ours: list[Tool] = []
    labels: list[str] = []
    echo: list[dict[str, Any]] = []
    hosted: dict[str, bool] = {}
    held: set[tuple[str, str]] = set()
    absent: set[str] = set()
    for place, tool in enumerate(request.tools or ()):
        param = f"tools[{place}]"
        match tool:
            case RequestFunction():
                functions.append(_function(tool))
            case RequestCustom():
                functions.append(_custom(tool))
            case RequestNamespace():
                functions += [_function(one, tool.name) for one in tool.tools]
            case RequestMcp():
                if tool.server_label in labels:
                    raise invalid(param, f"The server {tool.server_label} is named twice.")
                labels.append(tool.server_label)
                named = [one for one in tools if _allowed(one, tool)]
                ours += [one for one in named if one not in ours]
                held |= {(one.server, one.name) for one in named if _waits(one, tool)}
            case RequestOther(type="code_interpreter"):
                code = _hand(tools, "code_interpreter")
                if not code:
                    message = "Python (the operator has not exposed it: --tools python)"
                    raise unsupported(f"{param}.type", message)
                ours += [one for one in code if one not in ours]
                hosted["code"] = True
            case RequestOther(type=kind) if kind.startswith("web_search"):
                found = () if tool.external_web_access is False else _hand(tools, "browser")
                if not found:
                    # Clients send it by habit. Where there is no search, the model is told of none.
                    log.info("%s: a tool of type %s is not offered", param, kind[:40])
                    absent.add(kind)
                ours += [one for one in found if one not in ours]
                hosted["search"] = bool(found)
            case RequestOther(type="file_search"):  # it names what only its maker's server holds
                raise unsupported(f"{param}.type", "A tool of type 'file_search'")
            case RequestOther(type=kind):
                # Clients add some by the name of the model alone: what they asked needs none of them.
                log.warning(
                    "%s: there is no tool of type %r here: it is left out", param, kind[:40]
                )
                absent.add(kind)
                continue
        echo.append(_echo(tool))
    _unique([f.model_name for f in functions] + [one.model_name for one in ours])
    sources = "web_search_call.action.sources" in (request.include or ())
    shown = Hosted(sources=sources, held=frozenset(held), **hosted)
    return Offer(
        tuple(functions),
        tuple(ours),
        tuple(labels),
        echo,
        hosted=shown,
        absent=frozenset(absent),
    )


def choose(offered: Offer, request: CreateResponse) -> Offer:
    """What ``tool_choice`` leaves of it. Raises ApiError."""
    match request.tool_choice:
        case None | "auto":
            return offered
        case "none":
            if not (offered.functions or offered.tools):
                return offered
            return replace(offered, functions=(), tools=(), calls="none")
        case "required":
            left = replace(offered, calls="must")
        case ToolChoice(type="allowed_tools", mode=mode, tools=list(names)):
            places = [f"tool_choice.tools[{place}]" for place in range(len(names))]
            choices = {
                place: _choice(name, place) for place, name in zip(places, names, strict=True)
            }
            there = {param: one for param, one in choices.items() if one.type not in offered.absent}
            left = _only(offered, there, "must" if mode == "required" else "may")
        case choice:
            left = _only(offered, {"tool_choice": choice}, "must")
    if left.calls == "must" and not (left.functions or left.tools):
        raise invalid("tool_choice", "'tool_choice' demands a call, but there is no tool to call.")
    return left


def _only(
    offered: Offer, choices: Mapping[str, ToolChoice], calls: Literal["may", "must"]
) -> Offer:
    """``choices``: by where they stand in the request."""
    kept = [_named(offered, choice, param) for param, choice in choices.items()]
    return replace(
        offered,
        functions=tuple(f for f in offered.functions if any(f in found[0] for found in kept)),
        tools=tuple(t for t in offered.tools if any(t in found[1] for found in kept)),
        calls=calls,
        exact=True,
    )


def _choice(name: dict[str, Any], param: str) -> ToolChoice:
    try:
        return ToolChoice.model_validate(name)
    except ValueError:
        raise invalid(param, f"'{param}' is no reference to a tool.") from None


def _named(offered: Offer, choice: ToolChoice, param: str) -> tuple[list[FunctionTool], list[Tool]]:
    functions: list[FunctionTool] = []
    tools: list[Tool] = []
    match choice.type:
        case "function" | "custom":
            is_custom = choice.type == "custom"
            functions = [
                f for f in offered.functions if choice.name == f.name and f.custom == is_custom
            ]
        case "code_interpreter" if offered.hosted.code:
            tools = _hand(offered.tools, "code_interpreter")
        case kind if kind.startswith("web_search") and offered.hosted.search:
            tools = _hand(offered.tools, "browser")
        case "namespace":
            functions = [f for f in offered.functions if choice.name == f.namespace]
        case "mcp" if choice.server_label in offered.servers:
            tools = [
                tool
                for tool in offered.tools
                if tool.server == choice.server_label and choice.name in (None, tool.name)
            ]
            if choice.name is None:
                return functions, tools
    if not functions and not tools:
        raise invalid(param, f"'{param}' names no tool of this request.")
    return functions, tools


# --- functions ---


def _function(tool: RequestFunction, namespace: str | None = None) -> FunctionTool:
    return FunctionTool(
        tool.name,
        tool.description or "",
        tool.parameters or ANYTHING,
        namespace=namespace,
        constrained=tool.strict is not False,
        strict=tool.strict is True,
    )


def _custom(tool: RequestCustom) -> FunctionTool:
    said, grammar = tool.description or "", None
    if isinstance(tool.format, GrammarForm):
        grammar = Grammar(tool.format.syntax, tool.format.definition)
        said += f"\n\nThe input has this form ({grammar.syntax}):\n{grammar.text}"
    return FunctionTool(
        tool.name,
        f"{said}\n\nWrite the input itself, as plain text.".strip(),
        {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        constrained=False,
        strict=grammar is not None,
        custom=True,
        grammar=grammar,
    )


def _unique(names: Sequence[str]) -> None:
    """The model tells tools apart by their names alone."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid("tools", f"Two tools of this request are called {twice}.")


# --- MCP servers ---


def _hand(tools: Sequence[Tool], server: str) -> list[Tool]:
    return [tool for tool in tools if tool.server == server]


def _waits(tool: Tool, wanted: RequestMcp) -> bool:
    """Whether a call of it waits for the client's word."""
    match wanted.require_approval:
        case None | "never":
            return False
        case "always":
            return True
        case ApprovalFilter(always=always, never=never):
            if never is not None and _fits(tool, never):
                return False
            return always is None or _fits(tool, always)


def _allowed(tool: Tool, wanted: RequestMcp) -> bool:
    if tool.server != wanted.server_label:
        return False
    match wanted.allowed_tools:
        case None:
            return True
        case AllowedTools() as chosen:
            return _fits(tool, chosen)
        case names:
            return tool.name in names


def _fits(tool: Tool, chosen: AllowedTools) -> bool:
    names, read_only = chosen.tool_names, chosen.read_only
    return (names is None or tool.name in names) and (
        read_only is None or tool.read_only == read_only
    )


# --- what the response shows ---


def _echo(tool: RequestTool) -> dict[str, Any]:
    match tool:
        case RequestFunction():
            return tool.model_dump()
        case RequestNamespace():
            return tool.model_dump()
        case RequestCustom():
            return tool.model_dump(exclude_none=True)
        case RequestMcp():
            return {**tool.model_dump(), "server_url": _without_secrets(tool.server_url)}
        case RequestOther():
            return tool.model_dump(exclude_none=True)


def _without_secrets(url: str | None) -> str | None:
    """A URL may carry a password or a key: shown is where it leads only."""
    if url is None or re.fullmatch(r"[\w.-]*", url):
        return url
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return None
