"""`agent mcp login` and `logout`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.completion import complete_server
from agent.cli.login_prompt import terminal_dialog
from agent.cli.mcp import RootOption, configured_names, create_host, require_config, run_with
from agent.cli.options import TrustOption, flag
from agent.config.paths import user_paths
from agent.errors import UserError
from agent.util.process import EXIT_DONE, EXIT_FAILED
from agent.util.sanitize import echo
from tools.config.servers import ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.mcp.host import Host
from tools.mcp.login import LoginError

app = typer.Typer(rich_markup_mode=None)
ServerArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME|URL",
        help="A name from agent mcp list, or the URL of a server.",
        autocompletion=complete_server,
    ),
]


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
