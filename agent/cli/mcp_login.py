"""Performs `agent mcp login` and `logout`; the functions return exit codes and raise UserError."""

from __future__ import annotations

import sys
from pathlib import Path

from agent.cli.login_prompt import terminal_dialog
from agent.cli.mcp_actions import configured_names, create_host, require_config, run_with
from agent.config.paths import user_paths
from agent.errors import UserError
from agent.util.process import EXIT_DONE, EXIT_FAILED
from agent.util.sanitize import echo
from tools.config.servers import ServerConfig
from tools.mcp.credentials import CredentialStore
from tools.mcp.host import Host
from tools.mcp.login import LoginError


def login(
    name: str, root: Path, trust: bool, *, scopes: list[str], browser: bool, device: bool
) -> int:
    """Log in to a server over HTTP with OAuth, by its name or URL. ``scopes``: further ones."""
    host = create_host(root, trust)
    config = _find_server(host, name)
    if config.problem or not config.enabled:
        # Its headers may hold what only a server that someone agreed to should see.
        raise UserError(f"The server {name} {config.problem or 'is disabled'}.")
    if config.url is None:
        raise UserError(f"{name} is a stdio server; it needs no login.")

    async def work(host: Host) -> int:
        dialog = terminal_dialog(browser=browser, device=device)
        try:
            await host.log_in(config.name, dialog, scopes=scopes)
        except LoginError as error:
            echo(f"agent: {error}", file=sys.stderr)
            return EXIT_FAILED
        echo(f"Logged in to {name}.")
        return EXIT_DONE

    return run_with(host, work)


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


def logout(name: str, root: Path) -> None:
    from tools.mcp.oauth import log_out

    config = _find_server(create_host(root, trust=False), name)
    log_out(config, CredentialStore(user_paths().credentials))
    echo(f"Logged out of {name}; its tokens are deleted.")
