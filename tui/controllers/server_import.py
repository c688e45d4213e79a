"""Other programs' MCP servers, taken over without leaving the app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tui.util.format import shown

if TYPE_CHECKING:
    from tui.app import AgentApp


async def take_over(app: AgentApp) -> None:
    """Show what would be added, ask, add it, connect. Raises UserError."""
    from pathlib import Path

    from agent.cli.mcp_servers import news
    from tui.screens.confirm import Confirm

    path = app.session.runtime.where.servers
    found = news(Path.home(), path)
    if not found.entries:
        app.notify("No other MCP servers were found.")
        return

    def answered(yes: bool | None) -> None:
        if yes:
            add(app, found.entries)

    listed = "\n".join([*found.lines, *found.troubles])
    question = f"Add these MCP servers to yours? Their calls ask before they run.\n\n{listed}"
    await app.push_screen(Confirm(shown(question), "add them"), answered)


def add(app: AgentApp, entries: dict[str, Any]) -> None:
    """Into the person's file, and to those that run."""
    from tools.config import edit
    from tools.config.servers import ConfigError, read_file

    path = app.session.runtime.where.servers
    try:
        edit.put(path, entries)
        app.session.runtime.host.add([s for s in read_file(path).servers if s.name in entries])
    except ConfigError as error:
        app.notify(f"{error}.", severity="error", markup=False)
        return
    app.chat.say(f"Added to {path}: {', '.join(entries)}. F7 shows how they are.")
