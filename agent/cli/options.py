"""Spells the options that several commands share: typer sees those of `make_launch_options` in place of
the parameter ``launch: LaunchOptions`` of a command with `takes_launch_options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agent.cli.completion import (
    complete_approve,
    complete_model,
    complete_session,
    complete_tools,
)
from agent.config.launch import LaunchOptions
from agent.engine.placement.placement import MAX_SEQUENCES
from agent.util.user_files import expand_path

Effort = Literal["low", "medium", "high"]


def expand(value: Path | list[Path] | None) -> Path | list[Path] | None:
    """Put the home folder in for ``~`` in paths of the command line. Raises UserError."""
    if value is None or value == Path("-"):
        return value
    return list(map(expand_path, value)) if isinstance(value, list) else expand_path(value)


ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME|PATH",
        help="A model's name, or a GGUF file.",
        autocompletion=complete_model,
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="script:FILE", help="Scripted replies from FILE instead of a model."
    ),
]
EffortOption = Annotated[Effort | None, typer.Option(help="Reasoning effort; default: medium.")]
TemperatureOption = Annotated[
    float | None,
    typer.Option(min=0, help="Sampling temperature, 0 for greedy; default: the model's."),
]
TopPOption = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="Nucleus sampling: smallest set of tokens with this total probability."
    ),
]
TopKOption = Annotated[
    int | None,
    typer.Option(min=0, help="Sample from the k most likely tokens (0 = all)."),
]
MinPOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Drop tokens below this fraction of the top probability."),
]
SeedOption = Annotated[int | None, typer.Option(help="Random seed, for reproducible answers.")]
MaxOutputOption = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Maximum number of generated tokens, reasoning included."
    ),
]
MaxCallsOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Maximum number of tool calls.")
]
ContextOption = Annotated[
    int | None,
    typer.Option(min=256, metavar="N", help="Context length in tokens; default: models.toml's."),
]
CompactOption = Annotated[
    bool | None,
    typer.Option(
        "--compact/--no-compact",
        help="Summarise the oldest turns when the context is full; default: in the app only.",
    ),
]
OwnEngineOption = Annotated[
    bool,
    typer.Option(
        "--own-engine", help="Load the model even if another program of yours has loaded it."
    ),
]
LoopGuardOption = Annotated[
    bool,
    typer.Option(
        "--loop-guard/--no-loop-guard", help="Stop a reply that repeats itself.", show_default=False
    ),
]
ToolsOption = Annotated[
    str | None,
    typer.Option(
        metavar="all|none|NAME,…",
        help="Tools the model may use: servers, server.tool, built-in ones (python, files, browser,"
        " shell); all: servers, python and reading files.",
        autocompletion=complete_tools,
    ),
]

McpConfigOption = Annotated[
    list[Path] | None,
    typer.Option(callback=expand, metavar="FILE", help="JSON file with mcpServers (repeatable)."),
]
McpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--mcp",
        metavar="'NAME=COMMAND ARGS|URL'",
        help="An MCP server, a command or an address, for this start (repeatable).",
    ),
]
DemoToolsOption = Annotated[
    bool,
    typer.Option("--demo-tools", help="Start demonstration MCP servers: weather, time, notes."),
]
ApproveOption = Annotated[
    str | None,
    typer.Option(
        metavar="RULE,…|all",
        help="Run these tools without asking: server or server.tool.",
        autocompletion=complete_approve,
    ),
]
RootOption = Annotated[
    Path,
    typer.Option(
        callback=expand, metavar="DIR", help="The folder that the files and shell tools see."
    ),
]
SystemOption = Annotated[
    str | None,
    typer.Option("--system", metavar="TEXT|@FILE", help="System instructions for the model."),
]
ProjectOption = Annotated[
    bool | None,
    typer.Option(
        "--project-instructions/--no-project-instructions",
        help="Read AGENTS.md files, --root's and your own; never for API clients.",
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Continue this conversation; in the app, without ID, choose one.",
        autocompletion=complete_session,
    ),
]
HostOption = Annotated[
    str, typer.Option(help="Address to listen on; beyond loopback only with --api-key.")
]
PortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")
]
ParallelOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_SEQUENCES,
        metavar="N",
        help="Number of requests that are processed in parallel.",
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key", envvar="AGENT_API_KEY", help="Key that clients must send."),
]
KeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--api-key",
        metavar="KEY",
        envvar="AGENT_API_KEY",
        help="Key that clients must send (repeatable: each has its own files and conversations).",
    ),
]
OriginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin", metavar="ORIGIN", help="Allow web pages of this origin (repeatable)."
    ),
]
AliasOption = Annotated[
    list[str] | None,
    typer.Option(
        "--alias", metavar="NAME", help="Serve the model under this name too (repeatable)."
    ),
]
StoreOption = Annotated[
    bool, typer.Option("--store/--no-store", help="Store responses on disk, or in memory only.")
]
PrivateOption = Annotated[
    bool,
    typer.Option("--allow-private-urls", help="Allow clients' MCP servers at private addresses."),
]
ClientServersOption = Annotated[
    bool,
    typer.Option(
        "--client-servers", help="Allow clients' MCP servers where --host is not loopback."
    ),
]
LenientOption = Annotated[
    bool,
    typer.Option("--lenient", help="Ignore unknown and unsupported fields instead of refusing."),
]
MaxBodyOption = Annotated[
    int,
    typer.Option(
        "--max-body",
        min=1,
        max=256,
        metavar="MIB",
        help="Maximum size of a request; images need more.",
    ),
]
ReasoningOption = Annotated[
    Literal["openai", "open-responses"],
    typer.Option(help="Names of the events of raw reasoning."),
]
LogOption = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="Level of the log file (agent doctor names it)."),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        callback=expand,
        metavar="FILE",
        help="Write every token and event with its time, for Perfetto.",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-project", help="Trust the servers of the folder's .mcp.json, now and later."
    ),
]
HomeOption = Annotated[
    bool,
    typer.Option(
        "--allow-home",
        help="Let commands and the files tools work in your home folder, now and later.",
    ),
]


def make_launch_options(
    *,
    model: ModelOption = None,
    engine: EngineOption = None,
    effort: EffortOption = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    min_p: MinPOption = None,
    seed: SeedOption = None,
    max_output_tokens: MaxOutputOption = None,
    max_tool_calls: MaxCallsOption = None,
    context: ContextOption = None,
    compact: CompactOption = None,
    own_engine: OwnEngineOption = False,
    loop_guard: LoopGuardOption = True,
    tools: ToolsOption = None,
    mcp_config: McpConfigOption = None,
    mcp: McpOption = None,
    demo_tools: DemoToolsOption = False,
    approve: ApproveOption = None,
    root: RootOption = Path(),
    trust_project: TrustOption = False,
    allow_home: HomeOption = False,
    system: SystemOption = None,
    project_instructions: ProjectOption = None,
    log_level: LogOption = "warning",
    trace: TraceOption = None,
) -> LaunchOptions:
    """Build the shared options from what typer parsed; the parameters are the options themselves."""
    return LaunchOptions(
        model=model,
        engine=engine,
        effort=effort,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        max_output_tokens=max_output_tokens,
        max_tool_calls=max_tool_calls,
        context=context,
        compact=compact,
        own_engine=own_engine,
        loop_guard=loop_guard,
        tools=tools,
        mcp_config=tuple(mcp_config or ()),
        mcp=tuple(mcp or ()),
        demo_tools=demo_tools,
        approve=approve,
        root=root,
        trust_project=trust_project,
        allow_home=allow_home,
        system=system,
        project_instructions=project_instructions,
        log_level=log_level,
        trace=trace,
    )


_LAST_OPTIONS = ("log_level", "trace")
"""They end the help of every command; the others are where ``launch`` is declared."""


def takes_launch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter ``launch`` by the options of `make_launch_options`, for typer."""
    shared = inspect.signature(make_launch_options, eval_str=True).parameters
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
        launch = make_launch_options(**{name: values.pop(name) for name in shared})
        command(launch=launch, **values)

    # typer reads both: the signature for order and defaults, the annotations for types.
    vars(run).update(__signature__=signature.replace(parameters=parameters))
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
