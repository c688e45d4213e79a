"""Parses the command line with typer. The commands are in other modules, imported when they run."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import MutableMapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
import typer.core
import typer.main

from agent.cli import trust
from agent.cli.completion import (
    COMPLETION_VARIABLE,
    complete_client,
    complete_model,
    name_app_command,
)
from agent.cli.options import (
    AliasOption,
    ContextOption,
    EngineOption,
    HostOption,
    KeysOption,
    ModelOption,
    OriginOption,
    ParallelOption,
    PortOption,
    ResumeOption,
    expand,
    flag,
    takes_launch_options,
)
from agent.cli.process import run_app
from agent.config.launch import LaunchOptions
from agent.config.paths import user_paths
from agent.errors import UserError
from agent.observability.logging import log_to_file
from agent.server.http.options import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    MAX_BODY_MIB,
    MIB_BYTES,
    ServerOptions,
)
from agent.util.process import EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from agent.runtime.runtime import Runtime
    from tui.session import Serving


SPREAD_GROUPS = {"mcp": ("mcp", "mcp_edit")}
"""Groups of commands that are in several modules; any other is in the module of its name."""


class LateGroup(typer.core.TyperGroup):
    """A group whose commands are in modules that are imported when they are asked for."""

    _loaded: dict[str, Any] | None = None

    @property
    def commands(self) -> MutableMapping[str, Any]:
        if self._loaded is None:
            self._loaded = {}
            for module in SPREAD_GROUPS.get(str(self.name), (self.name,)):
                group = typer.main.get_command(import_module(f"agent.cli.{module}").app)
                assert isinstance(group, typer.core.TyperGroup)
                self._loaded |= group.commands
        return self._loaded

    @commands.setter
    def commands(self, none: MutableMapping[str, Any]) -> None:
        """Ignore what typer has found, as nothing is registered."""


class ProgramGroup(typer.core.TyperGroup):
    """The commands; its help has the options of the app, which need no command."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        super().format_commands(ctx, formatter)
        options = (option.get_help_record(ctx) for option in self.commands["chat"].params)
        with formatter.section("Options of the app, without a command"):
            formatter.write_dl([record for record in options if record])


app = typer.Typer(
    name="agent",
    cls=ProgramGroup,
    help="A local chat agent for GPT-OSS: it thinks, calls tools and answers, in one process.\n\n"
    "Without a command it opens the app (agent chat).",
    epilog="Examples: agent  ·  agent run 'What is 12*34?'  ·  agent serve --tools python",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
PROGRAM_OPTIONS = (
    "--help", "-h", "--version", "-V", "--install-completion", "--show-completion"
)  # fmt: skip
"""Options of the program itself; any other one without a command belongs to the app."""
PROMPT_COMMANDS = ("agent chat", "agent run")


def _add_group(name: str, *, help: str, epilog: str) -> None:
    group = typer.Typer(cls=LateGroup, help=help, epilog=epilog, no_args_is_help=True)
    app.add_typer(group, name=name)


_add_group(
    "models",
    help="List, download and remove models.",
    epilog="Example: agent models pull gpt-oss-20b",
)
_add_group(
    "sessions",
    help="List, search, show, replay, rename, delete, fork and export conversations.",
    epilog="IDs may be shortened, as the list shows them. Example: agent sessions show 3bc06fe5",
)
_add_group(
    "mcp",
    help="Add, remove, list, inspect and try MCP servers.\n\n"
    "Yours are in mcp.json in the config folder; a folder's own in its .mcp.json.",
    epilog="Examples: agent mcp add time -- uvx mcp-server-time  ·  agent mcp import"
    '  ·  agent mcp call time get_current_time \'{"timezone":"Europe/Rome"}\'',
)
_add_group(
    "approvals",
    help="List and revoke what you allowed for good (A, always, in the app's questions).\n\n"
    "Approvals count in the folder where you gave them. A rule says what it allows:"
    ' "run git status …" is every command that begins so; "run make test" is that command and no'
    ' other; "write DIR/…" is files in DIR and below; "open HOST" is pages of that host. Options'
    " that run or write something else (find -exec, sort -o) are never part of a rule that ends in …"
    " and ask again. Other tools are allowed one by one, until their definition changes.",
    epilog="Examples: agent approvals list  ·  agent approvals revoke 1f2e3d4c",
)
_add_group(
    "skills",
    help="List, show, add and remove skills: instructions that the model reads for certain tasks.\n\n"
    "A skill is a folder with a SKILL.md (https://agentskills.io): yours are in skills in the config"
    " folder and in ~/.agents/skills, a project's in .agents/skills and .claude/skills.",
    epilog="Examples: agent skills add ~/Downloads/release-notes  ·  agent skills list",
)
_add_group(
    "config",
    help="Show and change the settings of config.toml.\n\n"
    "Options on the command line take precedence over them, and they over models.toml.",
    epilog="Examples: agent config show  ·  agent config set effort high  ·  agent config edit",
)


def _print_version(requested: bool) -> None:
    if requested:
        from tools.version import program_version

        typer.echo(f"agent {program_version()}")
        raise typer.Exit


@app.callback()
def common(
    *,
    version: bool = typer.Option(
        False,
        "--version",
        "-V",
        help="Print name and version.",
        callback=_print_version,
        is_eager=True,
    ),
) -> None:
    """Options of the program itself."""
    log_to_file(user_paths())


@app.command(
    epilog="Examples: agent run 'What is 12*34?'  ·  git diff | agent run 'Review this' -q"
)
@takes_launch_options
def run(
    prompt: str | None = typer.Argument(
        None,
        help="The prompt; - reads it from stdin. Otherwise piped stdin is attached to it as data.",
    ),
    *,
    json_events: bool = flag("--json-events", help="Print every event as one JSON line."),
    output: Path | None = typer.Option(
        None, "--output", "-o", callback=expand, help="Write the final answer to this file too."
    ),
    quiet: bool = flag("--quiet", "-q", help="Print only the final answer and refused calls."),
    continue_latest: bool = flag(
        "--continue", "-c", help="Continue the latest conversation of this folder."
    ),
    resume: ResumeOption = None,
    output_schema: Path | None = typer.Option(
        None, callback=expand, metavar="FILE", help="JSON Schema of the answer."
    ),
    timeout: float | None = typer.Option(
        None, min=0.001, metavar="SECONDS", help="Stop after this time."
    ),
    dump_tokens: Path | None = typer.Option(
        None,
        callback=expand,
        metavar="FILE",
        help="Write the generated ids, as --engine script:FILE reads them.",
    ),
    no_stdin: bool = flag("--no-stdin", help="Do not read stdin, as within a loop that reads it."),
    begin_thought: str | None = typer.Option(
        None, metavar="TEXT", help="Beginning of the reasoning, which the model continues."
    ),
    begin_answer: str | None = typer.Option(
        None, metavar="TEXT", help="Beginning of the answer, which the model continues."
    ),
    launch: LaunchOptions,
) -> None:
    """Answer one prompt, then exit.

    On a terminal the reasoning, the calls and the answer are shown as they come; in a pipe only the
    final answer is on stdout. Exit codes: 0 done, 1 failed, 2 wrong options or a prompt too long,
    3 a required server is missing, 4 cut off by a limit, 129 the terminal is gone, 130 interrupted
    (Ctrl-C, SIGTERM), 141 the reader of the output is gone.
    """
    options = {name: value for name, value in locals().items() if name != "launch"}
    from agent.cli.run import RunRequest, main

    raise typer.Exit(main(RunRequest(**options), launch))


def _serving(launch: LaunchOptions, options: ServerOptions) -> Serving:
    """Run the HTTP server within the app; the port is bound before the screen is set up."""
    from agent import bootstrap
    from agent.server.serve import base_url, listen, serve_in
    from tui.session import Serving

    listener = listen(options.host, options.port, options.api_keys)

    def run(runtime: Runtime) -> Coroutine[Any, Any, None]:
        return serve_in(runtime, bootstrap.turn_options(launch, runtime.model), listener, options)

    return Serving(base_url(listener), run)


@app.command(
    epilog="Examples: agent  ·  agent 'What is 12*34?'  ·  agent --tools all,shell --root ~/project\n\n"
    "Keys: Enter sends, Ctrl-J is a new line, Esc interrupts, Ctrl-Q quits."
)
@takes_launch_options
def chat(
    prompt: str | None = typer.Argument(None, help="The first prompt, which is sent at once."),
    *,
    continue_latest: bool = flag(
        "--continue", "-c", help="Continue the latest conversation of this folder."
    ),
    resume: ResumeOption = None,
    plain: bool = flag(
        "--plain",
        help="Talk by lines of text, as for a screen reader; so it is where TERM is dumb.",
    ),
    serve: bool = flag("--serve", help="Serve /v1/responses from the same process too."),
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
    api_key: KeysOption = None,
    allow_origin: OriginOption = None,
    launch: LaunchOptions,
) -> None:
    """Talk with the model in the app.

    The default command: agent 'What is 12*34?' is short for agent chat 'What is 12*34?'.
    """
    if continue_latest and resume is not None:
        raise UserError("--continue and --resume exclude each other.")
    launch = trust.confirm_folder(launch)
    keys, origins = tuple(api_key or ()), tuple(allow_origin or ())
    exposes = launch.tools is not None
    options = ServerOptions(host, port, keys, allow_origins=origins, expose_tools=exposes)
    serving = _serving(launch, options) if serve else None
    code = run_app(
        launch,
        plain=plain,
        continue_latest=continue_latest,
        resume=resume,
        serving=serving,
        first_prompt=prompt or "",
    )
    raise typer.Exit(code)


@app.command(
    epilog="Example: agent serve --tools python  ·  then: OPENAI_BASE_URL=http://127.0.0.1:8080/v1"
)
@takes_launch_options
def serve(
    *,
    host: HostOption = DEFAULT_HOST,
    port: PortOption = DEFAULT_PORT,
    api_key: KeysOption = None,
    alias: AliasOption = None,
    allow_origin: OriginOption = None,
    launch: LaunchOptions,
    models: str | None = typer.Option(
        None, metavar="NAME,…", help="Keep these models loaded; others load when they are named."
    ),
    keep_alive: float | None = typer.Option(
        None, min=0, metavar="SECONDS", help="Unload a model after this time without a request."
    ),
    parallel: ParallelOption = None,
    store: bool = typer.Option(True, help="Store responses on disk, or in memory only."),
    client_servers: bool = flag(
        "--client-servers", help="Allow clients' MCP servers where --host is not loopback."
    ),
    allow_private_urls: bool = flag(
        "--allow-private-urls", help="Allow clients' MCP servers at private addresses."
    ),
    lenient: bool = flag(
        "--lenient", help="Ignore unknown and unsupported fields instead of refusing."
    ),
    max_body: int = typer.Option(
        MAX_BODY_MIB,
        min=1,
        max=256,
        metavar="MIB",
        help="Maximum size of a request; images need more.",
    ),
    page: bool = typer.Option(
        True, "--page/--no-page", help="Show browsers a page at /.", show_default=False
    ),
    reasoning_events: Literal["openai", "open-responses"] = typer.Option(
        "openai", help="Names of the events of raw reasoning."
    ),
) -> None:
    """Serve /v1/responses to other apps.

    No tool of this machine is offered to clients unless --tools names it.
    """
    from agent.server.serve import main

    options = ServerOptions(
        host,
        port,
        tuple(api_key or ()),
        allow_origins=tuple(allow_origin or ()),
        store=store,
        reasoning_events=reasoning_events,
        private_urls=allow_private_urls,
        client_servers=client_servers,
        aliases=tuple(alias or ()),
        lenient=lenient,
        page=page,
        max_body_bytes=max_body * MIB_BYTES,
    )
    code = main(launch, options, keep_alive=keep_alive, parallel=parallel, models=models)
    raise typer.Exit(code)


@app.command(
    epilog="Example: agent acp --tools all,shell  ·  docs/editors.md has blocks for editors"
)
@takes_launch_options
def acp(*, launch: LaunchOptions) -> None:
    """Serve an editor over stdin and stdout (Agent Client Protocol).

    Zed, JetBrains, Neovim and Emacs start it. Sessions are the conversations of the app; their tools
    work in the editor's folder.
    """
    from agent.acp.serve import main

    raise typer.Exit(main(launch))


@app.command(
    epilog="Example: agent batch questions.jsonl -o answers.jsonl  ·  run it again to continue"
)
@takes_launch_options
def batch(
    file: Path = typer.Argument(
        callback=expand, metavar="FILE", help="Requests, a JSON line each; - reads stdin."
    ),
    *,
    output: Path | None = typer.Option(
        None,
        "--output",
        "-o",
        callback=expand,
        help="Write a JSON line for each request to this file; existing results are skipped.",
    ),
    dry_run: bool = flag("--dry-run", help="Check the lines and count tokens; answer nothing."),
    parallel: ParallelOption = None,
    alias: AliasOption = None,
    launch: LaunchOptions,
) -> None:
    """Answer many requests, several at a time.

    A line is what OpenAI's batch files have: {"custom_id": "1", "method": "POST", "url":
    "/v1/responses", "body": {"input": "What is 2+2?"}}; /v1/chat/completions works too. Results are
    written as they come, in any order. To continue a run that was stopped, start it again. No tool is
    offered unless --tools names it. Exit codes: 0 all were answered, 1 some were not, 2 wrong options,
    130 interrupted.
    """
    from agent.cli.batch import main

    raise typer.Exit(
        main(file, output, launch, dry_run=dry_run, parallel=parallel, aliases=tuple(alias or ()))
    )


@app.command(
    epilog="Examples: agent launch codex  ·  agent launch claude --model gpt-oss-20b -p 'Fix the test'"
    "  ·  agent launch codex -- exec --help",
    context_settings={"ignore_unknown_options": True},
)
def launch(
    client: str | None = typer.Argument(
        None,
        help="codex, claude, opencode, copilot, vibe, qwen, pi, cline; default: list them.",
        autocompletion=complete_client,
    ),
    arguments: list[str] | None = typer.Argument(
        None, help="Arguments of the client; what comes behind -- is only for it."
    ),
    *,
    model: ModelOption = None,
    engine: EngineOption = None,
    context: ContextOption = None,
    parallel: ParallelOption = None,
    save: bool = flag(
        "--save", help="Only add the server's default address to the client's configuration."
    ),
    dry_run: bool = flag("--dry-run", help="Only print what would be set, without the key."),
) -> None:
    """Run a coding agent in this terminal, on the local model.

    It gets a server of its own on loopback, with a key, and the model's name and context length. A
    model that another program of yours has loaded is used, not loaded again. The client's own
    configuration stays as it is, unless you pass --save. The server ends with the client. Exit codes:
    the client's; 1 the model cannot be loaded, 2 wrong options or no such client.
    """
    from agent.cli import launch as clients

    if client is None:
        clients.print_clients()
        return
    mode = "save" if save else "print" if dry_run else "run"
    options = LaunchOptions(model=model, engine=engine, context=context)
    raise typer.Exit(clients.main(client, arguments or [], options, parallel, mode))


@app.command(epilog="Example: echo '[200005,17196,200008,525,200002]' | agent parse")
def parse(
    text: bool = flag("--text", help="Read markup instead of ids, special tokens spelled out."),
    tools: str | None = typer.Option(None, metavar="A,B", help="Treat these tools as declared."),
    format: str = typer.Option("harmony", help="The model family's format."),
    model: str | None = typer.Option(
        None,
        metavar="NAME|PATH",
        help="The model that wrote the ids, for other formats.",
        autocompletion=complete_model,
    ),
    chat_template: Path | None = typer.Option(
        None, metavar="FILE", help="Derive the format from this chat template (Jinja), with --text."
    ),
) -> None:
    """Parse generated tokens.

    Reads a JSON array of ids a line; prints its segments and repairs as a JSON object a line.
    """
    options = dict(locals())
    from agent.cli.parse import run as run_parse

    raise typer.Exit(run_parse(sys.stdin, sys.stdout, **options))


@app.command(epilog="Example: agent doctor --model gpt-oss-20b --bench")
def doctor(
    *,
    model: ModelOption = None,
    bench: bool = flag("--bench", help="Measure prefill and decode speed on this machine."),
    verbose: bool = flag("--verbose", "-v", help="Also show what llama.cpp was built for."),
) -> None:
    """Check this machine: what works, what is available, and how to fix the rest.

    It also says where the model would go in memory, and why. ok: it is there and works. off: an
    option turns it on. available: it can be downloaded. none: not there, and not needed. Exit codes:
    0 no problems, 1 problems, 2 no such model.
    """
    from agent.cli.doctor import main

    raise typer.Exit(main(model, bench=bench, verbose=verbose))


def _complete_resume(arguments: list[str]) -> list[str]:
    """Give ``--resume`` without an id an empty one, by which the app lets the person choose."""
    return [
        f"{argument}=" if argument == "--resume" and after.startswith("-") else argument
        for argument, after in zip(arguments, [*arguments[1:], "-"], strict=True)
    ]


def _invoke(arguments: list[str]) -> None:
    """Run a command and exit with its code. Raises UserError for wrong options."""
    try:
        sys.exit(app(arguments, prog_name="agent", standalone_mode=False))
    except typer.Abort:
        sys.exit(EXIT_FAILED)  # a question was not answered
    except SystemExit as exit_:
        if isinstance(exit_.__context__, BrokenPipeError):  # Click turns it into a failure
            raise exit_.__context__ from None
        raise
    except Exception as error:
        # Typer's class for what is wrong in options has no public name.
        if not hasattr(error, "format_message"):
            raise
        message: str = error.format_message().replace("Value error, ", "")
        if "\n" in message:  # the help of a command group, where no command was named
            print(message, file=sys.stderr)
            sys.exit(EXIT_USAGE)
        command = getattr(getattr(error, "ctx", None), "command_path", "agent")
        if message.startswith("No such option") and any(
            re.match(r"-\S* |-\d", argument) for argument in arguments
        ):
            raise UserError(f"{message}. A text that begins with - comes behind --.") from error
        if message.startswith("Got unexpected extra argument") and command in PROMPT_COMMANDS:
            message += "; quote a prompt of several words"
        ending = "" if message.endswith((".", "?")) else "."
        raise UserError(f"{message}{ending} See {command} --help.") from error


def is_for_app(argument: str) -> bool:
    """Whether a command line that begins with this argument has no command: an option of the app, or
    its first prompt. A word that resembles a command is a misspelled command."""
    if argument.startswith("-"):
        return argument not in PROGRAM_OPTIONS
    callbacks = [each.callback.__name__ for each in app.registered_commands if each.callback]
    groups = [str(group.name) for group in app.registered_groups]
    return not difflib.get_close_matches(argument, callbacks + groups)


def main() -> None:
    arguments = sys.argv[1:]
    if COMPLETION_VARIABLE in os.environ:
        name_app_command(os.environ, PROGRAM_OPTIONS)
    elif arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    elif not arguments or is_for_app(arguments[0]):
        arguments = ["chat", *arguments]
    if arguments[:1] == ["chat"]:
        arguments = _complete_resume(arguments)
    _invoke(arguments)
