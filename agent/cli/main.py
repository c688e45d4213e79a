"""The commands. Thin: options are parsed here, the work is done elsewhere, imported when needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.__main__ import told
from agent.cli import trust
from agent.cli.mcp import mcp_app
from agent.cli.models import app as models_app
from agent.cli.options import (
    HOST,
    PORT,
    ApproveOption,
    CompactOption,
    ContextOption,
    EffortOption,
    EngineOption,
    HostOption,
    KeyOption,
    LogOption,
    MaxCallsOption,
    MaxOutputOption,
    McpConfigOption,
    McpOption,
    MinPOption,
    ModelOption,
    OriginOption,
    PortOption,
    PrivateOption,
    ReasoningOption,
    ResumeOption,
    RootOption,
    SeedOption,
    StoreOption,
    SystemOption,
    TemperatureOption,
    ToolsOption,
    TopKOption,
    TopPOption,
    TraceOption,
    TrustOption,
)
from agent.cli.sessions import app as sessions_app
from agent.config.settings import places
from agent.errors import UserError
from agent.observability import logging
from agent.turn.endings import EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agent.cli.shared import Shared
    from agent.runtime.runtime import Runtime
    from tui.session import Serving

app = typer.Typer(
    name="agent",
    help="A local chat agent for GPT-OSS: it thinks, calls tools and answers, in one process.\n\n"
    "Without a command it opens the app (agent chat).",
    epilog="Examples: agent  ·  agent run 'What is 12*34?'  ·  agent serve --tools python",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
OF_ITSELF = ("--help", "-h", "--version", "-V")
"""What is asked of the program itself; another option without a command is the app's."""
app.add_typer(models_app, name="models")
app.add_typer(sessions_app, name="sessions")
app.add_typer(mcp_app, name="mcp")


def _say_version(asked: bool) -> None:
    if asked:
        from tools.version import version

        typer.echo(f"agent {version()}")
        raise typer.Exit


@app.callback()
def common(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Name and version.", callback=_say_version, is_eager=True
        ),
    ] = False,
) -> None:
    """What is asked of the program itself."""
    logging.to_file(places())


def _shared(given: dict[str, Any]) -> Shared:
    """The shared options among a command's own."""
    from dataclasses import fields

    from agent.cli.shared import Shared

    values = {field.name: given[field.name] for field in fields(Shared)}
    for name in ("mcp", "mcp_config"):
        values[name] = tuple(values[name] or ())
    return Shared(**values)


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
    resume: ResumeOption = None,
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
    compact: CompactOption = None,
    tools: ToolsOption = None,
    mcp_config: McpConfigOption = None,
    mcp: McpOption = None,
    approve: ApproveOption = None,
    root: RootOption = Path(),
    trust_project: TrustOption = False,
    system: SystemOption = None,
    log_level: LogOption = "warning",
    trace: TraceOption = None,
) -> None:
    """Answer one prompt, then exit.

    On a terminal the reasoning, the calls and the answer are shown as they come; in a pipe only the
    final answer is on stdout. Exit codes: 0 done, 1 failed, 2 wrong options or a prompt too long,
    3 a required server is missing, 4 cut off by a limit, 130 interrupted.
    """
    shared = _shared(locals())
    from agent.cli.run import Job, main

    job = Job(
        prompt=prompt, json_events=json_events, output=output, quiet=quiet, go_on=go_on,
        resume=resume, output_schema=output_schema, timeout=timeout, dump_tokens=dump_tokens,
    )  # fmt: skip
    raise typer.Exit(main(job, shared))


def _serving(
    shared: Shared, host: str, port: int, api_key: str | None, origins: tuple[str, ...]
) -> Serving:
    """The HTTP face for the app's own process; the port is taken before the screen is."""
    from agent import bootstrap
    from agent.server.serve import address, listen, serve_in
    from tui.session import Serving

    listener = listen(host, port, api_key)

    def run(runtime: Runtime) -> Coroutine[Any, Any, None]:
        return serve_in(
            runtime,
            bootstrap.options(shared, runtime.model),
            listener,
            api_key=api_key,
            expose_tools=shared.tools is not None,
            allow_origins=origins,
        )

    return Serving(address(listener), run)


@app.command(
    epilog="Examples: agent  ·  agent chat --continue  ·  agent --tools all,shell --root ~/project\n\n"
    "Keys: Enter sends, Ctrl-J is a new line, Esc interrupts, Ctrl-Q leaves."
)
def chat(
    *,
    go_on: Annotated[
        bool, typer.Option("--continue", "-c", help="Go on with the latest conversation.")
    ] = False,
    resume: ResumeOption = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve /v1/responses from the same process too.")
    ] = False,
    host: HostOption = HOST,
    port: PortOption = PORT,
    api_key: KeyOption = None,
    allow_origin: OriginOption = None,
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
    compact: CompactOption = None,
    tools: ToolsOption = None,
    mcp_config: McpConfigOption = None,
    mcp: McpOption = None,
    approve: ApproveOption = None,
    root: RootOption = Path(),
    trust_project: TrustOption = False,
    system: SystemOption = None,
    log_level: LogOption = "warning",
    trace: TraceOption = None,
) -> None:
    """Talk with the model in the app (the default command)."""
    shared = trust.asked(_shared(locals()))
    from tui.main import main

    origins = tuple(allow_origin or ())
    serving = _serving(shared, host, port, api_key, origins) if serve else None
    raise typer.Exit(main(shared, go_on=go_on, resume=resume, serving=serving))


@app.command(
    epilog="Example: agent serve --tools python  ·  then: OPENAI_BASE_URL=http://127.0.0.1:8080/v1"
)
def serve(
    *,
    host: HostOption = HOST,
    port: PortOption = PORT,
    api_key: KeyOption = None,
    allow_origin: OriginOption = None,
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
    compact: CompactOption = None,
    tools: ToolsOption = None,
    mcp_config: McpConfigOption = None,
    mcp: McpOption = None,
    approve: ApproveOption = None,
    root: RootOption = Path(),
    trust_project: TrustOption = False,
    system: SystemOption = None,
    keep_alive: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Unload the model after so long without a request."
        ),
    ] = None,
    store: StoreOption = True,
    allow_private_urls: PrivateOption = False,
    reasoning_events: ReasoningOption = "openai",
    log_level: LogOption = "warning",
    trace: TraceOption = None,
) -> None:
    """Serve /v1/responses to other apps.

    No tool of this machine is offered to clients unless --tools names it.
    """
    shared = _shared(locals())
    from agent.server.serve import Face, main

    raise typer.Exit(
        main(
            shared,
            host=host,
            port=port,
            api_key=api_key,
            allow_origins=allow_origin or (),
            keep_alive=keep_alive,
            face=Face(
                store=store,
                reasoning_events=reasoning_events,
                private_urls=allow_private_urls,
            ),
        )
    )


@app.command(epilog="Example: echo '[200005,17196,200008,525,200002]' | agent parse")
def parse(
    text: Annotated[
        bool, typer.Option("--text", help="Stdin is markup, special tokens spelled out.")
    ] = False,
    tools: Annotated[
        str | None, typer.Option(metavar="A,B", help="Tools that count as declared.")
    ] = None,
    format: Annotated[str, typer.Option(help="The model family's format.")] = "harmony",
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME|PATH", help="Whose ids they are, in another format."),
    ] = None,
) -> None:
    """Parse generated tokens.

    One JSON array of ids a line in; its segments and repairs out, as one JSON object a line.
    """
    from agent.cli.parse import run as run_parse

    names = [name.strip() for name in tools.split(",") if name.strip()] if tools else None
    raise typer.Exit(
        run_parse(sys.stdin, sys.stdout, text=text, tools=names, format=format, model=model)
    )


@app.command(epilog="Example: agent doctor --model gpt-oss-20b --bench")
def doctor(
    *,
    model: ModelOption = None,
    bench: Annotated[
        bool, typer.Option("--bench", help="Measure how fast the model reads and writes here.")
    ] = False,
) -> None:
    """Check this machine: each line is ok, or what to do.

    It also says where the model would go in memory, and why.
    """
    from agent.cli.doctor import main

    raise typer.Exit(main(model, bench=bench))


def _picking(arguments: list[str]) -> list[str]:
    """``--resume`` without an id is one with an empty id: the app lets choose."""
    following = [*arguments[1:], "-"]
    pairs = zip(arguments, following, strict=True)
    return [
        f"{one}=" if one == "--resume" and after.startswith("-") else one for one, after in pairs
    ]


def _asked(arguments: list[str]) -> None:
    """Run a command. Raises UserError for options that are wrong."""
    try:
        sys.exit(app(arguments, prog_name="agent", standalone_mode=False))
    except typer.Abort:
        sys.exit(EXIT_FAILED)  # a question was not answered
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # Click ends then, as a failure does
            raise left.__context__ from None
        raise
    except Exception as error:
        # Typer's class for what is wrong in options has no public name.
        if not hasattr(error, "format_message"):
            raise
        said: str = error.format_message()
        if "\n" in said:  # all that a command of commands has, where none was named
            print(said, file=sys.stderr)
            sys.exit(EXIT_USAGE)
        command = getattr(getattr(error, "ctx", None), "command_path", "agent")
        raise UserError(f"{said.rstrip('.')}; see {command} --help.") from error


def main() -> None:
    """Any command; without one, the app."""
    arguments = sys.argv[1:]
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in OF_ITSELF):
        arguments = ["chat", *arguments]
    if arguments[0] == "chat":
        arguments = _picking(arguments)
    told(lambda: _asked(arguments))


if __name__ == "__main__":
    main()
