"""Commands on what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.commands.registry import Command

if TYPE_CHECKING:
    from tui.app import AgentApp


async def new(app: AgentApp, _: str) -> None:
    app.session.new()
    await app.show_conversation()


async def compact(app: AgentApp, _: str) -> None:
    await app.talk.follow("/compact", app.session.compact())


COMMANDS = (
    Command("new", "begin another conversation; this one is kept", new, idle=True),
    Command("compact", "a summary takes the place of earlier turns", compact, idle=True),
)
