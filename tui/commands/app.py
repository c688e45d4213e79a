"""Commands about the program itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.commands.registry import Command

if TYPE_CHECKING:
    from tui.app import AgentApp


async def show_help(app: AgentApp, _: str) -> None:
    app.action_help()


async def leave(app: AgentApp, _: str) -> None:
    await app.action_leave()


COMMANDS = (
    Command("help", "all keys and commands", show_help),
    Command("quit", "leave; the conversation is kept", leave),
)
