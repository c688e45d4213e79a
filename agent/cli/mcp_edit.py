"""The commands of `agent mcp` that change the person's mcp.json, or their tokens."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from agent.cli.completion import complete_server
from agent.cli.login_prompt import terminal_dialog
from agent.cli.mcp import (
    JsonOption,
    NameArgument,
    RootOption,
    configured_names,
    create_host,
    print_json,
    require_config,
    run_with,
    state_of,
)
from agent.cli.options import TrustOption, flag
from agent.cli.trust import agrees, can_ask
from agent.config.paths import user_paths
from agent.errors import UserError, user_errors
from agent.util.process import EXIT_DONE, EXIT_FAILED
from agent.util.sanitize import echo
from tools.config import edit
from tools.config import registry as mcp_registry
from tools.config.importers import plan_import
from tools.config.servers import ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.mcp.host import Host
from tools.mcp.login import LoginError
from tools.run_later import PROJECT_FILES
from tools.sandbox.isolation import best_isolation

app = typer.Typer(rich_markup_mode=None)
ServerArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME|URL",
        help="A name from agent mcp list, or the URL of a server.",
        autocompletion=complete_server,
    ),
]


class _AddCommand(TyperCommand):
    """Leaves options behind the first word of the server's command to that command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = {
            name: not getattr(option, "is_flag", False)
            for option in self.params
            for name in (*option.opts, *option.secondary_opts)
        }
        words, skips = 0, False
        for index, word in enumerate(args):
            if word == "--" and not skips:
                break
            if skips or (word.startswith("-") and len(word) > 1):
                skips = not skips and takes_value.get(word, False)
                continue
            words += 1
            if words == 2 and not word.startswith(("http://", "https://")):
                args = [*args[:index], "--", *args[index:]]
                break
        return super().parse_args(ctx, args)


DEFAULT_REGISTRY = "https://registry.modelcontextprotocol.io"
RegistryOption = Annotated[
    str, typer.Option(envvar="AGENT_MCP_REGISTRY", metavar="URL", help="The registry's address.")
]
ScopeOption = Annotated[
    str,
    typer.Option(
        "--scope", "-s", metavar="user|project", help="Your mcp.json, or this folder's .mcp.json."
    ),
]
MAX_SEARCH_LIMIT = 100
UNCONFINED_PROGRAMS = ("docker", "podman", "nerdctl")
"""Commands that start a server where this program's sandbox does not reach."""


@app.command(
    cls=_AddCommand,
    epilog="Examples: agent mcp add git -- uvx mcp-server-git --repository .  ·  "
    "agent mcp add web https://example.org/mcp --header 'Authorization: Bearer ${TOKEN}'",
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
        None,
        "--env",
        "-e",
        metavar="KEY=VALUE",
        help="Environment variable of the command (repeatable).",
    ),
    header: list[str] | None = typer.Option(
        None, "--header", "-H", metavar="'KEY: VALUE'", help="HTTP header for the URL (repeatable)."
    ),
    transport: str | None = typer.Option(
        None,
        "--transport",
        "-t",
        metavar="http|sse",
        help="Transport of the URL; default: the one that works.",
    ),
    url: str | None = typer.Option(None, metavar="URL", help="The URL, as other programs take it."),
    scope: ScopeOption = "user",
    cwd: Path | None = typer.Option(None, metavar="DIR", help="Folder that the command runs in."),
    force: bool = flag("--force", help="Replace a server of the same name."),
    sandbox: bool = flag("--sandbox", help="Start the command in the sandbox."),
) -> None:
    """Add a server to your mcp.json; ${VAR} is stored as written and looked up at its start."""
    path = _scope_path(scope)
    command = [url, *(command or [])] if url else command
    settings = {
        "env": _key_value_pairs(env or [], "="),
        "headers": _key_value_pairs(header or [], ":"),
    }
    if from_registry is None:
        entry = _server_entry(command or [], settings, transport, cwd, sandbox)
    elif command or transport or cwd or sandbox:
        raise UserError("--from takes no COMMAND, --transport, --cwd or --sandbox.")
    else:
        if name in edit.server_names(path) and not force:
            raise UserError(f"{path} has a server {name!r} already; --force replaces it.")
        entry = _registry_entry(from_registry, registry, settings, remote)
        if not yes and not agrees(f"Add it to {path} as {name}?"):
            echo("Nothing was changed.")
            return
    edit.add(path, {name: entry}, replace=force)
    echo(f"{name} is in {path}; agent mcp inspect {shlex.quote(name)} shows what it offers.")
    if entry.get("args"):
        echo(f"It runs  {edit.describe_entry(entry)}")
    if from_registry is None and scope == "user":
        _offer_sandbox(path, name, entry)


@app.command("add-json", epilog="""Example: agent mcp add-json git '{"command": "git-mcp"}'""")
def add_json(
    name: str = typer.Argument(metavar="NAME", help="The server's name."),
    entry: str = typer.Argument(metavar="JSON", help="Its settings, as in mcp.json."),
    scope: ScopeOption = "user",
    force: bool = flag("--force", help="Replace a server of the same name."),
) -> None:
    """Add a server by its settings, in the spelling of any client."""
    path = _scope_path(scope)
    with user_errors(ValueError, failure="The settings are not valid JSON"):
        values = json.loads(entry)
    edit.add(path, {name: values}, replace=force)
    ignored = edit.check(name, values).ignored
    echo(f"{name} is in {path}; agent mcp inspect {shlex.quote(name)} shows what it offers.")
    if ignored:
        echo(f"Not understood in its settings: {', '.join(ignored)}")


def _scope_path(scope: str) -> Path:
    """The file of a scope, by the names that Claude Code and Gemini CLI have."""
    if scope not in ("user", "project"):
        raise UserError(f"--scope must be user or project, not {scope!r}.")
    return user_paths().mcp_json if scope == "user" else Path.cwd() / PROJECT_FILES[0]


def _server_entry(
    command: list[str],
    settings: dict[str, dict[str, str]],
    transport: str | None,
    cwd: Path | None,
    sandbox: bool,
) -> dict[str, Any]:
    if not command:
        raise UserError("Name a command after --, a URL, or --from REGISTRY-ID.")
    entry: dict[str, Any]
    if command[0].startswith(("http://", "https://")):
        if len(command) > 1 or settings["env"] or cwd or sandbox:
            raise UserError("A URL takes no arguments, --env, --cwd or --sandbox.")
        entry = {"type": transport, "url": command[0], "headers": settings["headers"]}
    else:
        if settings["headers"] or transport not in (None, "stdio"):
            raise UserError("--header and --transport are for URLs.")
        executable, *args = _split_command(command)
        entry = {"command": executable, "args": args, "env": settings["env"]}
        entry |= {"cwd": str(cwd.absolute()) if cwd else None, "sandbox": sandbox}
    return {key: value for key, value in entry.items() if value}


def _registry_entry(
    server_id: str, address: str, settings: dict[str, dict[str, str]], remote: bool
) -> dict[str, Any]:
    """The entry of a server of the registry, with these values in its tables; prints what it runs."""
    identifier, _, version = server_id.partition("@")
    server = mcp_registry.fetch(address, identifier, version or "latest")
    installation = mcp_registry.installation(server, remote=remote)
    entry = installation.entry
    for table, values in settings.items():
        if values:
            entry[table] = entry.get(table, {}) | values
    _print_installation(server, installation)
    return entry


def _print_installation(
    server: mcp_registry.RegistryServer, installation: mcp_registry.Installation
) -> None:
    entry = installation.entry
    echo(f"{server.name}  {server.version}  {server.description}")
    if server.status != "active":
        echo(f"  The registry lists it as {server.status}.")
    if "url" in entry:
        echo(f"  connects to  {entry['url']}")
    else:
        echo(f"  runs  {shlex.join([entry['command'], *entry['args']])}")
    for table in ("env", "headers"):
        for key, value in entry.get(table, {}).items():
            echo(f"  {table}  {key}={json.dumps(value, ensure_ascii=False)}")
    text = json.dumps(entry)
    for variable, purpose in installation.variables.items():
        if f"${{{variable}}}" in text:
            echo(f"  set {variable} before it starts{f': {purpose}' if purpose else ''}")


def _offer_sandbox(path: Path, name: str, entry: dict[str, Any]) -> None:
    program = Path(entry.get("command", "")).name
    is_confined = not program or "sandbox" in entry or program in UNCONFINED_PROGRAMS
    if is_confined or not best_isolation().ok:
        return
    question = "It runs with all your rights. Start it now, to see whether it runs in the sandbox?"
    if can_ask() and agrees(question):
        _move_to_sandbox(path, name, entry)
    else:
        echo("It runs with all your rights; --sandbox --force has it start in a sandbox instead.")


def _move_to_sandbox(path: Path, name: str, entry: dict[str, Any]) -> None:
    """Let a server start in the sandbox from now on, if it does so now."""
    edit.add(path, {name: entry | {"sandbox": True}}, replace=True)

    async def start(host: Host) -> int:
        host.connect(name)
        async for _ in host.iter_started([name]):
            pass
        state = state_of(host, name)
        if state.status == "ready":
            echo(f"It runs in the sandbox from now on, with {len(state.tools)} tools.")
            return EXIT_DONE
        echo(f"It keeps all your rights; it does not start in the sandbox: {state.error}.")
        return EXIT_FAILED

    code = EXIT_FAILED
    try:
        code = run_with(create_host(Path(), trust=False), start)
    finally:
        if code != EXIT_DONE:  # also after Ctrl-C
            edit.add(path, {name: entry}, replace=True)


def _split_command(command: list[str]) -> list[str]:
    """Split a single argument like a shell, unless a file has that name."""
    if len(command) > 1 or Path(command[0]).is_file():
        words = command
    else:
        try:
            words = shlex.split(command[0])
        except ValueError as error:
            raise UserError(f"{command[0]!r} is not a command: {str(error).lower()}.") from None
    if not words or not words[0]:
        raise UserError("The command is empty; write it after --.")
    return words


def _key_value_pairs(options: list[str], separator: str) -> dict[str, str]:
    pairs = {}
    for option in options:
        key, present, value = option.partition(separator)
        if not present or not key.strip():
            raise UserError(f"{option!r} must be KEY{separator}VALUE.")
        pairs[key.strip()] = value.strip() if separator == ":" else value
    return pairs


@app.command(epilog="Example: agent mcp search github")
def search(
    words: list[str] = typer.Argument(metavar="WORDS…"),
    limit: int = typer.Option(
        20, min=1, max=MAX_SEARCH_LIMIT, metavar="N", help="Servers to list."
    ),
    registry: RegistryOption = DEFAULT_REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Search the MCP registry; agent mcp add NAME --from ID adds one."""
    matches = mcp_registry.search(registry, words, limit)
    servers = matches.servers
    for server in () if as_json else servers:
        status = "" if server.status == "active" else f"  ({server.status})"
        echo(f"{server.name}  {server.version}{status}\n  {server.description}")
    if as_json:
        print_json([server.data for server in servers])
    elif servers:
        echo(f"\nAdd one: agent mcp add NAME --from {servers[0].name}")
    elif matches.more:
        echo(f"No server for {' '.join(words)!r} is among those that were read.")
    else:
        echo(f"The registry has no server for {' '.join(words)!r}.")
    if matches.more:
        is_most = limit == MAX_SEARCH_LIMIT
        by_limit = "" if is_most else f", or list up to {MAX_SEARCH_LIMIT} with --limit"
        echo(f"There may be more: add a word of the name{by_limit}.", file=sys.stderr)


@app.command("rm", hidden=True, epilog="Example: agent mcp rm git")
@app.command(epilog="Example: agent mcp remove git")
def remove(name: NameArgument, scope: ScopeOption = "user") -> None:
    """Remove a server from your mcp.json."""
    path = _scope_path(scope)
    edit.remove(path, name)
    echo(f"Removed {name} from {path}.")


@app.command("import", epilog="Example: agent mcp import --yes")
def import_servers(yes: bool = flag("--yes", "-y", help="Do not ask for confirmation.")) -> None:
    """Import the servers of Claude, Codex, Cursor, VS Code and others; shows them and asks."""
    path = user_paths().mcp_json
    plan = plan_import(Path.home(), path)
    entries = plan.entries
    for line in plan.lines:
        echo(f"  {line}")
    for problem in plan.problems:
        echo(f"  {problem}", file=sys.stderr)
    if not entries:
        echo("No new servers were found.")
        return
    if not yes and not agrees(f"Add {len(entries)} to {path}?"):
        echo("Nothing was changed.")
        return
    edit.add(path, entries)
    echo(f"{len(entries)} added to {path}.")


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
    host = create_host(root, trust_project)
    config = _find_server(host, name)
    if config.problem or not config.enabled:
        # Its headers may hold what only a server that someone agreed to should see.
        raise UserError(f"The server {name} {config.problem or 'is disabled'}.")
    if config.url is None:
        raise UserError(f"{name} is a stdio server; it needs no login.")

    async def work(host: Host) -> int:
        dialog = terminal_dialog(browser=browser, device=device)
        try:
            await host.log_in(config.name, dialog, scopes=scope or [])
        except LoginError as error:
            echo(f"agent: {error}", file=sys.stderr)
            return EXIT_FAILED
        echo(f"Logged in to {name}.")
        return EXIT_DONE

    raise typer.Exit(run_with(host, work))


def _find_server(host: Host, name: str) -> ServerConfig:
    """The settings of a server, or of one that is in no file and given by its URL."""
    if not name.startswith(("http://", "https://")):
        return require_config(host, name)
    for configured in configured_names(host):
        config = require_config(host, configured)
        if config.url == name:
            return config
    config = ServerConfig(name, url=name, trusted=True)
    host.add_servers([config], connect=False)
    return config


@app.command(epilog="Example: agent mcp logout web")
def logout(name: ServerArgument, root: RootOption = Path()) -> None:
    """Log out: delete a server's tokens."""
    from tools.mcp.oauth import log_out

    config = _find_server(create_host(root, trust=False), name)
    log_out(config, CredentialStore(user_paths().credentials))
    echo(f"Logged out of {name}; its tokens are deleted.")
