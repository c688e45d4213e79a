"""The commands. Thin: options are parsed here, the work is done elsewhere, imported when needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

app = typer.Typer(
    name="agent",
    help="A local chat agent for GPT-OSS: it thinks, calls tools and answers, in one process.\n\n"
    "agent run PROMPT answers once; --json-events gives the same as JSON lines.",
    epilog="Example: agent run 'Multiply 123*456 using the mcp.code_interpreter tool.'",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
models_app = typer.Typer(
    help="The models: what is known, what is installed.",
    epilog="Example: agent models pull gpt-oss-20b",
    rich_markup_mode=None,
    no_args_is_help=True,
)
app.add_typer(models_app, name="models")

Effort = Literal["low", "medium", "high"]

# --- options that several commands share ---

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
ToolsOption = Annotated[
    str | None,
    typer.Option(
        metavar="all|none|NAME,…",
        help="Tools the model may use: servers, server.tool, or hands (python, files).",
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
    Path, typer.Option(metavar="DIR", help="The folder that the files tools see.")
]
SystemOption = Annotated[
    str | None,
    typer.Option("--system", metavar="TEXT|@FILE", help="Instructions for the model."),
]
LogOption = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="What goes into the log file (agent doctor says where)."),
]


def fail(message: str, code: int = 2) -> NoReturn:
    """One sentence on stderr."""
    print(f"agent: {message}", file=sys.stderr)
    raise typer.Exit(code)


@app.command(
    epilog="Examples: agent run 'What is 12*34?'  ·  git diff | agent run 'Review this' -q"
)
def run(
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="The prompt; - reads it from stdin. Piped stdin beside it is appended."
        ),
    ] = None,
    *,
    json_events: Annotated[
        bool, typer.Option("--json-events", help="Every event as one JSON line on stdout.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the final answer to this file too.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the final answer.")] = False,
    go_on: Annotated[bool, typer.Option("--continue", help="Go on with the latest one.")] = False,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with this conversation.")
    ] = None,
    output_schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON Schema that the answer should follow.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Stop after this time.")
    ] = None,
    dump_tokens: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the generated ids, as --engine script:FILE reads them."
        ),
    ] = None,
    model: ModelOption = None,
    engine: EngineOption = None,
    effort: EffortOption = "medium",
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    min_p: MinPOption = None,
    seed: SeedOption = None,
    max_output_tokens: MaxOutputOption = None,
    max_tool_calls: MaxCallsOption = None,
    context: ContextOption = None,
    tools: ToolsOption = None,
    mcp_config: McpConfigOption = None,
    mcp: McpOption = None,
    approve: ApproveOption = None,
    root: RootOption = Path(),
    system: SystemOption = None,
    log_level: LogOption = "warning",
) -> None:
    """Answer one prompt, then exit.

    On a terminal the reasoning, the calls and the answer are shown as they come; in a pipe only the
    final answer is on stdout. Exit codes: 0 done, 1 failed, 2 wrong options or a prompt too long,
    3 a required server is missing, 4 cut off by a limit, 130 interrupted.
    """
    from agent.run import Job, main
    from agent.setup import Shared

    shared = Shared(
        model=model, engine=engine, effort=effort, temperature=temperature, top_p=top_p,
        top_k=top_k, min_p=min_p, seed=seed, max_output_tokens=max_output_tokens,
        max_tool_calls=max_tool_calls, context=context, tools=tools,
        mcp_config=tuple(mcp_config or ()), mcp=tuple(mcp or ()), approve=approve, root=root,
        system=system, log_level=log_level,
    )  # fmt: skip
    job = Job(
        prompt=prompt, json_events=json_events, output=output, quiet=quiet, go_on=go_on,
        resume=resume, output_schema=output_schema, timeout=timeout, dump_tokens=dump_tokens,
    )  # fmt: skip
    raise typer.Exit(main(job, shared))


@app.command(epilog="Example: echo '[200005,17196,200008,525,200002]' | agent parse")
def parse(
    text: Annotated[
        bool, typer.Option("--text", help="Stdin is markup, special tokens spelled out.")
    ] = False,
    tools: Annotated[
        str | None, typer.Option(metavar="A,B", help="Tools that count as declared.")
    ] = None,
    format: Annotated[str, typer.Option(help="The model family's format.")] = "harmony",
) -> None:
    """Show what generated tokens mean: one JSON array of ids a line in, segments and repairs out."""
    from agent.parse import run as run_parse

    names = [name.strip() for name in tools.split(",") if name.strip()] if tools else None
    raise typer.Exit(run_parse(sys.stdin, sys.stdout, text=text, tools=names, format=format))


@app.command()
def doctor() -> None:
    """Check everything that a turn needs; each line is ok, or what to do."""
    from agent.doctor import main

    raise typer.Exit(main())


@models_app.command("list")
def models_list() -> None:
    """The models of models.toml; those that can run now are marked."""
    from agent.config import places
    from agent.models import known

    for model in known(places()).values():
        mark = "installed" if model.installed else ""
        print(f"{model.name:16} {mark:10} {model.description}")


@models_app.command("path")
def models_path(name: str) -> None:
    """Print where a model's GGUF lies; the embedded one is expanded first."""
    from agent.setup import model_path

    print(model_path(name))


@models_app.command("pull", epilog="HF_ENDPOINT names another hub; HF_TOKEN is used if it is set.")
def models_pull(name: str) -> None:
    """Download a model of models.toml; a stopped download goes on where it was."""
    from agent.pull import pull

    print(pull(name))


def main() -> None:
    """The entry point: everything that people did wrong is one sentence."""
    from agent.errors import UserError

    try:
        app(prog_name="agent")
    except UserError as error:
        print(f"agent: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output is gone; nothing more can be said to them.
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
