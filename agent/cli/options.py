"""Spells the options that several commands share: typer sees the fields of LaunchOptions in place of
the parameter ``launch: LaunchOptions`` of a command with `takes_launch_options`."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from typer import Option

from agent.cli.completion import complete_approve, complete_model, complete_session, complete_tools
from agent.config.launch import LaunchOptions
from agent.engine.placement.placement import MAX_SEQUENCES
from agent.util.user_files import expand_path


def expand(value: Path | list[Path] | None) -> Path | list[Path] | None:
    """Put the home folder in for ``~`` in paths of the command line. Raises UserError."""
    if value is None or value == Path("-"):
        return value
    return list(map(expand_path, value)) if isinstance(value, list) else expand_path(value)


def flag(*names: str, help: str) -> Any:
    """An option without a value, False where it is not passed."""
    return Option(False, *names, help=help)


ResumeOption = Annotated[
    str | None,
    Option(
        metavar="ID",
        help="Continue this conversation; in the app, without ID, choose one.",
        autocompletion=complete_session,
    ),
]
HostOption = Annotated[
    str, Option(help="Address to listen on; beyond loopback only with --api-key.")
]
PortOption = Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0: any free one.")]
ParallelOption = Annotated[
    int | None,
    Option(
        min=1,
        max=MAX_SEQUENCES,
        metavar="N",
        help="Number of requests that are processed in parallel.",
    ),
]
KeysOption = Annotated[
    list[str] | None,
    Option(
        metavar="KEY",
        envvar="AGENT_API_KEY",
        help="Key that clients must send (repeatable: each has its own files and conversations).",
    ),
]
OriginOption = Annotated[
    list[str] | None, Option(metavar="ORIGIN", help="Allow web pages of this origin (repeatable).")
]
AliasOption = Annotated[
    list[str] | None,
    Option(metavar="NAME", help="Serve the model under this name too (repeatable)."),
]


_OPTIONS: dict[str, Any] = {
    "model": Option(
        metavar="NAME|PATH", help="A model's name, or a GGUF file.", autocompletion=complete_model
    ),
    "engine": Option(metavar="script:FILE", help="Scripted replies from FILE instead of a model."),
    "effort": Option(help="Reasoning effort; default: medium."),
    "temperature": Option(min=0, help="Sampling temperature, 0 for greedy; default: the model's."),
    "top_p": Option(
        min=0, max=1, help="Nucleus sampling: smallest set of tokens with this total probability."
    ),
    "top_k": Option(min=0, help="Sample from the k most likely tokens (0 = all)."),
    "min_p": Option(min=0, max=1, help="Drop tokens below this fraction of the top probability."),
    "seed": Option(help="Random seed, for reproducible answers."),
    "max_output_tokens": Option(
        min=1, metavar="N", help="Maximum number of generated tokens, reasoning included."
    ),
    "max_reasoning_tokens": Option(
        min=0, metavar="N", help="Maximum reasoning tokens before a call or the answer; 0: none."
    ),
    "max_tool_calls": Option(min=0, metavar="N", help="Maximum number of tool calls."),
    "context": Option(
        min=256, metavar="N", help="Context length in tokens; default: models.toml's."
    ),
    "compact": Option(
        help="Summarise the oldest turns when the context is full; default: in the app only."
    ),
    "own_engine": Option(
        "--own-engine", help="Load the model even if another program of yours has loaded it."
    ),
    "loop_guard": Option(help="Stop a reply that repeats itself.", show_default=False),
    "tools": Option(
        metavar="all|none|NAME,…",
        help="Tools the model may use: servers, server.tool, built-in ones (python, files, browser,"
        " shell); all: servers, python and reading files.",
        autocompletion=complete_tools,
    ),
    "mcp_config": Option(
        callback=expand, metavar="FILE", help="JSON file with mcpServers (repeatable)."
    ),
    "mcp": Option(
        metavar="'NAME=COMMAND ARGS|URL'",
        help="An MCP server, a command or an address, for this start (repeatable).",
    ),
    "demo_tools": Option(
        "--demo-tools", help="Start demonstration MCP servers: weather, time, notes."
    ),
    "approve": Option(
        metavar="RULE,…|all",
        help="Run these tools without asking: server or server.tool.",
        autocompletion=complete_approve,
    ),
    "mode": Option(
        help="ask: calls that change something ask first; plan: only tools that read run; accept-edits:"
        " the files tools change files without asking."
    ),
    "root": Option(
        callback=expand, metavar="DIR", help="The folder that the files and shell tools see."
    ),
    "trust_project": Option(
        "--trust-project", help="Trust the servers of the folder's .mcp.json, now and later."
    ),
    "allow_home": Option(
        "--allow-home",
        help="Let commands and the files tools work in your home folder, now and later.",
    ),
    "system": Option(metavar="TEXT|@FILE", help="System instructions for the model."),
    "project_instructions": Option(
        help="Read AGENTS.md files, --root's and your own; never for API clients."
    ),
    "log_level": Option(help="Level of the log file (agent doctor names it)."),
    "trace": Option(
        callback=expand,
        metavar="FILE",
        help="Write every token and event with its time, for Perfetto.",
    ),
}
"""The shared options, by the names of `LaunchOptions`, which has their types and defaults."""
ModelOption = Annotated[str | None, _OPTIONS["model"]]
EngineOption = Annotated[str | None, _OPTIONS["engine"]]
ContextOption = Annotated[int | None, _OPTIONS["context"]]
TrustOption = Annotated[bool, _OPTIONS["trust_project"]]
_LAST_OPTIONS = ("log_level", "trace")
"""They end the help of every command; the others are where ``launch`` is declared."""


def launch_parameters() -> Iterator[inspect.Parameter]:
    types = get_type_hints(LaunchOptions)
    for field in fields(LaunchOptions):
        kind, default = types[field.name], field.default
        if get_origin(kind) is tuple:
            kind, default = list[get_args(kind)[0]] | None, None  # type: ignore[misc]
        elif field.name == "trust_project":
            kind = bool  # the digest comes from elsewhere
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[kind, _OPTIONS[field.name]],
        )


def takes_launch_options(command: Callable[..., None]) -> Callable[..., None]:
    shared = {parameter.name: parameter for parameter in launch_parameters()}
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "launch":
            parameters += [p for name, p in shared.items() if name not in _LAST_OPTIONS]
        else:
            parameters.append(parameter)
    parameters += [shared[name] for name in _LAST_OPTIONS]

    @wraps(command)
    def run(**values: Any) -> None:
        options = {name: values.pop(name) for name in shared}
        lists = {name: tuple(options[name] or ()) for name in ("mcp_config", "mcp")}
        command(launch=LaunchOptions(**options | lists), **values)

    # typer reads both: the signature for order and defaults, the annotations for types.
    vars(run).update(__signature__=signature.replace(parameters=parameters))
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
