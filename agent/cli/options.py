"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Effort = Literal["low", "medium", "high"]

ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME|PATH", help="A name of models.toml, or a GGUF file."),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine", metavar="script:FILE", help="Scripted replies from FILE instead of a model."
    ),
]
EffortOption = Annotated[Effort, typer.Option(help="How much the model reasons.")]
TemperatureOption = Annotated[
    float | None, typer.Option(min=0, help="0 is greedy; default: the model's.")
]
TopPOption = Annotated[float | None, typer.Option(min=0, max=1, help="Default: the model's.")]
TopKOption = Annotated[int | None, typer.Option(min=0, help="0 is off; default: the model's.")]
MinPOption = Annotated[float | None, typer.Option(min=0, max=1, help="Default: the model's.")]
SeedOption = Annotated[int | None, typer.Option(help="For answers that can be repeated.")]
MaxOutputOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Tokens that the model may write, reasoning included."),
]
MaxCallsOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Tool calls that are run at most.")
]
ContextOption = Annotated[
    int | None,
    typer.Option(min=256, metavar="N", help="Context in tokens; default: models.toml's."),
]
CompactOption = Annotated[
    bool | None,
    typer.Option(
        "--compact/--no-compact",
        help="Summarise the oldest turns when the context is full; default: in the app only.",
    ),
]
ToolsOption = Annotated[
    str | None,
    typer.Option(
        metavar="all|none|NAME,…",
        help="Tools the model may use: servers, server.tool, or hands (python, files, browser, shell);"
        " all: servers, python and reading files.",
    ),
]
McpConfigOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="JSON with mcpServers; may be given again."),
]
McpOption = Annotated[
    list[str] | None,
    typer.Option("--mcp", metavar="'NAME=COMMAND ARGS'", help="One MCP server over stdio; again."),
]
ApproveOption = Annotated[
    str | None,
    typer.Option(metavar="RULE,…|all", help="Run these without asking: server or server.tool."),
]
RootOption = Annotated[
    Path, typer.Option(metavar="DIR", help="The folder that the files and shell tools see.")
]
SystemOption = Annotated[
    str | None,
    typer.Option("--system", metavar="TEXT|@FILE", help="Instructions for the model."),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Go on with this conversation (app: [ID], to pick)."),
]
HOST, PORT = "127.0.0.1", 8080
HostOption = Annotated[str, typer.Option(help="Beyond loopback only with --api-key.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
KeyOption = Annotated[
    str | None,
    typer.Option("--api-key", envvar="AGENT_API_KEY", help="Clients must send it as their key."),
]
OriginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin", metavar="ORIGIN", help="A web page's origin that may call; again."
    ),
]
StoreOption = Annotated[
    bool, typer.Option("--store/--no-store", help="Keep responses on disk; else in memory only.")
]
PrivateOption = Annotated[
    bool,
    typer.Option(
        "--allow-private-urls", help="Requests may bring MCP servers of this machine and network."
    ),
]
ReasoningOption = Annotated[
    Literal["openai", "open-responses"],
    typer.Option(help="What the events of raw reasoning are called."),
]
LogOption = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="What goes into the log file (agent doctor says where)."),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write every token and event with its time (Perfetto)."),
]
TrustOption = Annotated[
    bool, typer.Option("--trust-project", help="Start the servers of the folder's .mcp.json.")
]
