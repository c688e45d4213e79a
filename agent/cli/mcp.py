"""`agent mcp …`: parses the commands, whose docstrings are their help texts; `mcp_actions` performs
them. It is imported late, as the MCP client does not belong to ``--help``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.cli.completion import complete_server
from agent.cli.options import (
    HostOption,
    PortOption,
    TrustOption,
    expand,
    flag,
    takes_launch_options,
)
from agent.config.launch import LaunchOptions
from agent.errors import UserError
from agent.server.http.options import DEFAULT_HOST

app = typer.Typer(rich_markup_mode=None)
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="A name from agent mcp list.", autocompletion=complete_server
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DEFAULT_REGISTRY = "https://registry.modelcontextprotocol.io"
RegistryOption = Annotated[
    str, typer.Option(envvar="AGENT_MCP_REGISTRY", metavar="URL", help="The registry's address.")
]
ServerArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME|URL",
        help="A name from agent mcp list, or the URL of a server.",
        autocompletion=complete_server,
    ),
]
RootOption = Annotated[
    Path, typer.Option(callback=expand, metavar="DIR", help="Also read this folder's .mcp.json.")
]


@app.command("list", epilog="Example: agent mcp list --root ~/project")
def list_servers(
    root: RootOption = Path(), trust_project: TrustOption = False, as_json: JsonOption = False
) -> None:
    """Connect to every server and show its state."""
    from agent.cli import mcp_actions

    raise typer.Exit(mcp_actions.list_servers(root, trust_project, as_json=as_json))


@app.command(
    epilog="Examples: agent mcp add git -- uvx mcp-server-git --repository .  ·  "
    "agent mcp add web https://example.org/mcp --header 'Authorization: Bearer ${TOKEN}'"
)
def add(
    name: str = typer.Argument(metavar="NAME", help="The server's name."),
    command: list[str] | None = typer.Argument(
        None, metavar="COMMAND ARGS… | URL", help="The command and its arguments, after --."
    ),
    *,
    from_registry: str | None = typer.Option(
        None,
        "--from",
        metavar="REGISTRY-ID[@VERSION]",
        help="Add a server of the registry (agent mcp search); shows what it runs, and asks.",
    ),
    remote: bool = flag("--remote", help="With --from: its address, not its package."),
    yes: bool = flag("--yes", "-y", help="With --from: do not ask for confirmation."),
    registry: RegistryOption = DEFAULT_REGISTRY,
    env: list[str] | None = typer.Option(
        None, metavar="KEY=VALUE", help="Environment variable of the command (repeatable)."
    ),
    header: list[str] | None = typer.Option(
        None, metavar="'KEY: VALUE'", help="HTTP header for the URL (repeatable)."
    ),
    transport: str | None = typer.Option(
        None, metavar="http|sse", help="Transport of the URL; default: the one that works."
    ),
    cwd: Path | None = typer.Option(None, metavar="DIR", help="Folder that the command runs in."),
    force: bool = flag("--force", help="Replace a server of the same name."),
    sandbox: bool = flag("--sandbox", help="Start the command in the sandbox."),
) -> None:
    """Add a server to your mcp.json; ${VAR} is stored as written and looked up at its start."""
    from agent.cli import mcp_actions, mcp_registry

    if from_registry is None:
        mcp_actions.add(
            name,
            command or [],
            env or [],
            header or [],
            transport=transport,
            cwd=cwd,
            force=force,
            sandbox=sandbox,
        )
        return
    if command or transport or cwd or sandbox:
        raise UserError("--from takes no COMMAND, --transport, --cwd or --sandbox.")
    settings = mcp_actions.env_and_headers(env or [], header or [])
    code = mcp_registry.add(
        name, from_registry, registry, remote=remote, settings=settings, force=force, yes=yes
    )
    raise typer.Exit(code)


@app.command(epilog="Example: agent mcp search github")
def search(
    words: list[str] = typer.Argument(metavar="WORDS…"),
    limit: int = typer.Option(20, min=1, max=100, metavar="N", help="Servers to list."),
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Search the MCP registry; agent mcp add NAME --from ID adds one."""
    from agent.cli import mcp_registry

    mcp_registry.search(words, registry, limit, as_json=as_json)


@app.command(epilog="Example: agent mcp remove git")
def remove(name: NameArgument) -> None:
    """Remove a server from your mcp.json."""
    from agent.cli import mcp_actions

    mcp_actions.remove(name)


@app.command("import", epilog="Example: agent mcp import --yes")
def import_servers(
    yes: bool = flag("--yes", "-y", help="Do not ask for confirmation."),
) -> None:
    """Import the servers of Claude, Codex, Cursor, VS Code and others; shows them and asks."""
    from agent.cli import mcp_actions

    raise typer.Exit(mcp_actions.import_servers(yes))


@app.command(epilog="Example: agent mcp inspect git")
def inspect(
    name: NameArgument,
    root: RootOption = Path(),
    trust_project: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a server's tools, resources and prompts, and its stderr."""
    from agent.cli import mcp_actions

    raise typer.Exit(mcp_actions.inspect(name, root, trust_project, as_json=as_json))


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
    from agent.cli import mcp_actions

    raise typer.Exit(
        mcp_actions.call(name, tool, arguments, answer or [], root, trust_project, as_json=as_json)
    )


@app.command(
    epilog="Examples: agent mcp login web  ·  agent mcp login https://example.org/mcp --device"
)
def login(
    name: ServerArgument,
    scope: list[str] | None = typer.Option(
        None, metavar="SCOPE", help="Ask for this scope as well (repeatable)."
    ),
    browser: bool = typer.Option(True, help="Open the login page, or only print its address."),
    device: bool = flag(
        "--device", help="Log in on any machine with a code, where the server can."
    ),
    root: RootOption = Path(),
    trust_project: TrustOption = False,
) -> None:
    """Log in to an HTTP server in the browser; its tokens are stored for later runs.

    With the browser on another machine, paste the address that it ends at.
    """
    from agent.cli import mcp_login

    code = mcp_login.login(
        name, root, trust_project, scopes=scope or [], browser=browser, device=device
    )
    raise typer.Exit(code)


@app.command(epilog="Example: agent mcp logout web")
def logout(name: ServerArgument, root: RootOption = Path()) -> None:
    """Log out: delete a server's tokens."""
    from agent.cli import mcp_login

    mcp_login.logout(name, root)


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
    from agent.server.mcp.serve import McpServeOptions, main

    options = McpServeOptions(http, host, port, api_key, store, conversations)
    raise typer.Exit(main(launch, options))
