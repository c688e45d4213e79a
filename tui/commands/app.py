"""Commands on the program itself: help and quitting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tui.commands.registry import Command

if TYPE_CHECKING:
    from tui.commands.context import CommandContext


async def show_help(app: CommandContext, _: str) -> None:
    """Open the page of keys and commands."""
    app.action_help()


async def leave(app: CommandContext, _: str) -> None:
    """End the app."""
    await app.action_leave()


def commands(app: CommandContext) -> tuple[Command, ...]:
    """List the commands of this module, bound to ``app``."""
    return (
        Command("help", "all keys and commands", partial(show_help, app)),
        Command("quit", "leave; the conversation is kept", partial(leave, app)),
    )
