"""`agent mcp …`: lists, inspects and calls MCP servers, and is one; `mcp_edit` has the commands that
change something. The docstrings are the help texts."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.cli import login_prompt
from agent.cli.completion import complete_server
from agent.cli.mcp_forms import FormAnswers
from agent.cli.options import (
    HostOption,
    PortOption,
    TrustOption,
    expand,
    flag,
    takes_launch_options,
)
from agent.cli.trust import can_ask
from agent.config.launch import LaunchOptions
from agent.config.paths import user_paths
from agent.errors import UserError, user_errors
from agent.server.http.options import DEFAULT_HOST, ServerOptions
from agent.util.process import EXIT_DONE, EXIT_FAILED
from agent.util.sanitize import echo, escape_json
from tools.config.servers import ServerConfig
from tools.factory import ToolboxOptions, build_toolbox
from tools.mcp.host import Host
from tools.results import protocol_failure
from tools.sanitize import clean_line, clean_text
from tools.types import Prompt, Resource, ServerState, Tool, ToolResult

app = typer.Typer(rich_markup_mode=None)
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A name from agent mcp list.", autocompletion=complete_server
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
RootOption = Annotated[
    Path, typer.Option(callback=expand, metavar="DIR", help="Also read this folder's .mcp.json.")
]
MAX_RESULT_CHARS, MAX_PIPED_CHARS = 32_000, 1 << 30
"""Characters of a result on a terminal, and in a pipe: no message of a server is longer."""


def create_host(root: Path, trust: bool, max_result_chars: int = MAX_RESULT_CHARS) -> Host:
    """A host of the person's servers and those of ``root``; nothing is connected yet."""
    paths = user_paths()
    if not root.is_dir():
        raise UserError(f"--root: {root} is not a folder.")
    return build_toolbox(
        ToolboxOptions(
            root=root,
            max_result_chars=max_result_chars,
            results_folder=paths.cache / "results",
            server_homes=paths.cache / "mcp",
            user_config=paths.mcp_json,
            approvals_file=paths.approvals,
            credentials_file=paths.credentials,
            own_folders=paths.folders,
            trust_project=trust,
        )
    ).host


def require_config(host: Host, name: str) -> ServerConfig:
    """Return the settings of a server; raises UserError if there is none of this name."""
    config = host.server_config(name)
    if config is None:
        known = ", ".join(configured_names(host)) or "none"
        raise UserError(f"There is no server {name!r}; known: {known}.")
    return config


def configured_names(host: Host) -> list[str]:
    """The servers of the configuration files, without the built-in ones."""
    names = [state.name for state in host.server_states()]
    return [n for n in names if (config := host.server_config(n)) and config.builtin is None]


def run_with(host: Host, work: Callable[[Host], Awaitable[int]]) -> int:
    async def run() -> int:
        try:
            return await work(host)
        finally:
            await host.close()

    return asyncio.run(run())


@app.command("list", epilog="Example: agent mcp list --root ~/project")
def list_servers(
    root: RootOption = Path(), trust_project: TrustOption = False, as_json: JsonOption = False
) -> None:
    """Connect to every server and show its state."""
    host = create_host(root, trust_project)

    async def work(host: Host) -> int:
        names = configured_names(host)
        for name in names:
            host.connect(name)
        width = max(map(len, names), default=0)
        async for name in host.iter_started(names):
            if not as_json:
                echo(_status_line(state_of(host, name), require_config(host, name), width))
        states = [state for state in host.server_states() if state.name in names]
        if as_json:
            print_json([server_object(s, require_config(host, s.name)) for s in states])
        elif not states:
            echo("No server is configured: agent mcp add NAME -- COMMAND, or agent mcp import.")
        return EXIT_FAILED if any(state.status == "failed" for state in states) else EXIT_DONE

    raise typer.Exit(run_with(host, work))


def state_of(host: Host, name: str) -> ServerState:
    return next(state for state in host.server_states() if state.name == name)


def _status_line(state: ServerState, config: ServerConfig, width: int) -> str:
    summary = clean_line(config.command_line)
    if state.status == "ready":
        summary = f"{len(state.tools)} tools  MCP {state.protocol}  {summary}"
    elif state.error:
        summary = _indented(state.error)
    origin = "  (this folder's)" if config.from_project else ""
    if config.ignored:
        origin += f"\n  not understood in its settings: {clean_line(', '.join(config.ignored))}"
    line = f"{clean_text(state.name):{width}}  {state.status:8}  {summary}{origin}"
    return "\n  ".join([line, *state.skipped_lines])


def _indented(text: str) -> str:
    """Indent all lines but the first: only this program's own begin at the margin."""
    return "\n  ".join(text.splitlines())


@app.command("get", hidden=True, epilog="Example: agent mcp get git")
@app.command(epilog="Example: agent mcp inspect git")
def inspect(
    name: NameArgument,
    root: RootOption = Path(),
    trust_project: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a server's tools, resources and prompts, and its stderr."""
    host = create_host(root, trust_project)
    require_config(host, name)

    async def work(host: Host) -> int:
        host.connect(name)
        await host.wait_started({name})
        state, config = state_of(host, name), require_config(host, name)
        tools = [tool for tool in host.tools() if tool.server == name]
        lists = state.status == "ready" and not config.builtin
        resources = await host.resources(name) if lists else []
        prompts = await host.prompts(name) if lists else []
        if as_json:
            server = server_object(state, config)
            print_json(inspection_object(server, tools, resources, prompts, state.stderr))
        else:
            echo(_status_line(state, config, len(name)))
            if state.protocol_reason:
                echo(f"MCP {state.protocol}: {state.protocol_reason}")
            _print_offers(tools, resources, prompts)
            if state.stderr:
                echo(f"\nLast on its stderr:\n  {_indented(state.stderr)}")
        return EXIT_DONE if state.status == "ready" else EXIT_FAILED

    raise typer.Exit(run_with(host, work))


def _print_offers(
    tools: Sequence[Tool], resources: Sequence[Resource], prompts: Sequence[Prompt]
) -> None:
    if instructions := next((tool.server_instructions for tool in tools), ""):
        echo(f"\nIts instructions, which the model reads:\n  {_indented(instructions)}")
    for tool in tools:
        description = " ".join(tool.description.split())
        only = " (only reads)" if tool.read_only else ""
        echo(f"\n{clean_text(tool.name)}{only}: {description}")
        echo(f"  {json.dumps(tool.parameters, ensure_ascii=False)}")
    for resource in resources:
        echo(f"\nresource {clean_text(resource.uri)}  {resource.name}")
    for prompt in prompts:
        names = ", ".join(f"{key}{'' if required else '?'}" for key, required in prompt.arguments)
        echo(f"\nprompt {clean_text(prompt.name)}({names})  {prompt.description}")


@app.command(epilog='Example: agent mcp call time get_current_time \'{"timezone":"Europe/Rome"}\'')
def call(
    name: NameArgument,
    tool: str = typer.Argument(metavar="TOOL"),
    arguments: str = typer.Argument("{}", metavar="JSON"),
    *,
    answer: list[str] | None = typer.Option(
        None,
        metavar="JSON|decline|cancel",
        help="Answer a question of the server; its defaults fill in the rest (repeatable).",
    ),
    root: RootOption = Path(),
    trust_project: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Call one tool and print its result, in full if piped; exit code 1 if it fails."""
    forms = FormAnswers(answer or [])
    with user_errors(ValueError, failure="The arguments are not valid JSON"):
        values = json.loads(arguments)
    if not isinstance(values, dict):
        raise UserError("The arguments must be one JSON object.")
    piped = as_json or not (sys.stdout and sys.stdout.isatty())
    host = create_host(root, trust_project, MAX_PIPED_CHARS if piped else MAX_RESULT_CHARS)
    require_config(host, name)

    on_login = login_prompt.ask_login if can_ask() else None
    shown: list[str] = []

    def print_output(stream: str, text: str) -> None:
        shown.append(text)
        echo(clean_text(text), file=sys.stderr)

    async def work(host: Host) -> int:
        host.connect(name)
        await host.wait_started({name})
        if on_login and await host.offer_login(name, on_login):
            await host.wait_started({name})
        definition = next((t for t in host.tools() if (t.server, t.name) == (name, tool)), None)
        if definition is None:
            why = _missing_tool_reason(state_of(host, name), tool)
            result = protocol_failure(f"the server {name} {why}", -32602)
        else:
            result = await host.call(
                definition,
                values,
                on_progress=_print_progress,
                on_output=print_output,
                on_elicitation=forms.answer,
                on_login=on_login,
            )
        failed = result.failed or forms.problem is not None
        if forms.problem is not None:
            echo(f"agent: {forms.problem}", file=sys.stderr)
        if as_json:
            print_json(result_object(result))
        elif piped or not sys.stderr.isatty() or "".join(shown).strip() != result.text.strip():
            echo(result.model_text, file=sys.stderr if failed else sys.stdout)
        return EXIT_FAILED if failed else EXIT_DONE

    raise typer.Exit(run_with(host, work))


def _missing_tool_reason(state: ServerState, tool: str) -> str:
    if state.status == "disabled":
        return "is disabled"
    if state.status == "failed" and state.error:
        return state.error
    return f"has no tool {tool!r}: it has {', '.join(state.tools) or 'none'}"


def _print_progress(progress: float, total: float | None, message: str | None) -> None:
    of = f"/{total:g}" if total is not None else ""
    echo(f"… {progress:g}{of} {clean_text(message or '')}", file=sys.stderr)


@app.command(
    epilog="Examples: agent mcp serve --model gpt-oss-20b --tools python  ·  "
    "claude mcp add gpt-oss -- agent mcp serve  ·  agent mcp serve --http --port 8090"
)
@takes_launch_options
def serve(
    *,
    http: bool = flag("--http", help="Serve streamable HTTP instead of stdin and stdout."),
    host: HostOption = DEFAULT_HOST,
    port: PortOption = 0,
    api_key: str | None = typer.Option(
        None, envvar="AGENT_API_KEY", help="Key that clients must send."
    ),
    store: bool = typer.Option(True, "--store/--no-store", help="Store conversations on disk."),
    conversations: bool = flag(
        "--conversations", help="Let clients read and continue your other conversations too."
    ),
    launch: LaunchOptions,
) -> None:
    """Run as an MCP server: other programs ask the local model. Only --tools are exposed."""
    from agent.server.mcp.serve import main

    options = ServerOptions(host, port, (api_key or "",), store=store)
    raise typer.Exit(main(launch, options, http=http, conversations=conversations))


# --- JSON, in MCP's own words where it has them ---


def print_json(value: object) -> None:
    """Print a value on one line, which cannot steer a terminal."""
    echo(escape_json(json.dumps(value, ensure_ascii=False)))


def server_object(state: ServerState, config: ServerConfig) -> dict[str, Any]:
    """Describe a server; ``command`` is as it is written in its file."""
    return {
        "name": state.name,
        "status": state.status,
        "error": state.error,
        "transport": state.transport,
        "protocol": state.protocol or None,
        "protocol_reason": state.protocol_reason or None,
        "needs_login": state.needs_login,
        "command": config.command_line,
        "project": config.from_project,
        "ignored": list(config.ignored),
        "required": state.required,
        "tools": state.tools,
        "skipped_tools": dict(state.skipped),
    }


def inspection_object(
    server: dict[str, Any],
    tools: list[Tool],
    resources: list[Resource],
    prompts: list[Prompt],
    stderr: str,
) -> dict[str, Any]:
    return server | {
        "instructions": next((tool.server_instructions for tool in tools), "") or None,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.parameters,
                "annotations": {"readOnlyHint": tool.read_only},
            }
            for tool in tools
        ],
        "resources": [
            {
                "uriTemplate" if resource.template else "uri": resource.uri,
                "name": resource.name,
                "description": resource.description,
                "mimeType": resource.mime,
            }
            for resource in resources
        ],
        "prompts": [
            {
                "name": prompt.name,
                "description": prompt.description,
                "arguments": [
                    {"name": name, "required": required} for name, required in prompt.arguments
                ],
            }
            for prompt in prompts
        ],
        "stderr": stderr,
    }


def result_object(result: ToolResult) -> dict[str, Any]:
    """Describe a result as MCP's CallToolResult; ``text`` names the files that hold binary data."""
    described: dict[str, Any] = {
        "isError": result.failed,
        "content": result.content,
        "text": result.text,
    }
    if result.failure == "protocol":
        described["error"] = {"code": result.code, "message": result.text}
    if result.structured is not None:
        described["structuredContent"] = result.structured
    return described
