"""Imports the MCP servers of other programs without leaving the app."""

from pathlib import Path
from typing import Any

from agent.errors import UserError
from tools.config import edit
from tools.config.file import folder_environment, own_servers, read_file
from tools.config.importers import plan_import
from tools.config.servers import ConfigError
from tui.app_context import AppContext
from tui.screens.dialogs import ConfirmDialog
from tui.util.format import display_text


async def offer_import(app: AppContext) -> None:
    """Show which servers would be added, ask, add and connect them. Raises UserError."""
    path = app.session.runtime.paths.mcp_json
    try:
        plan = plan_import(Path.home(), path)
    except ConfigError as error:
        raise UserError(f"{error}.") from error
    if not plan.entries:
        app.notify("No other MCP servers were found.")
        return

    def on_close(confirmed: bool | None) -> None:
        if confirmed:
            add_servers(app, plan.entries)

    lines = "\n".join([*plan.lines, *plan.problems])
    question = f"Add these MCP servers to yours? Their calls ask before they run.\n\n{lines}"
    await app.push_screen(ConfirmDialog(display_text(question), "add them"), on_close)


def add_servers(app: AppContext, entries: dict[str, Any]) -> None:
    path = app.session.runtime.paths.mcp_json
    environment = folder_environment(app.session.launch.root.expanduser().resolve())
    try:
        edit.add(path, entries)
        file = read_file(path, environment)
        servers = [server for server in own_servers(file) if server.name in entries]
        app.session.runtime.host.add_servers(servers)
    except ConfigError as error:
        app.notify(f"{error}.", severity="error", markup=False)
        return
    key = app.key_bindings.label("mcp")
    app.transcript.add_notice(f"Added to {path}: {', '.join(entries)}. {key} shows their state.")
