"""Commands that lead to other conversations, models and servers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tui.commands.registry import Choice, Command

if TYPE_CHECKING:
    from tui.app import AgentApp

SHORT = 8
"""Characters of an id, as lists show it."""


async def sessions(app: AgentApp, _: str) -> None:
    await app.rooms.sessions()


async def resume(app: AgentApp, wanted: str) -> None:
    if not wanted:
        await app.rooms.sessions()
        return
    app.session.open(wanted)
    await app.show_conversation()


def conversations(app: AgentApp, _: str) -> Iterable[Choice]:
    for one in app.session.store.summaries():
        yield Choice(one.id.removeprefix("conv_")[:SHORT], one.title)


async def model(app: AgentApp, name: str) -> None:
    if name:
        await app.rooms.switch(name)
    else:
        await app.rooms.models()


def usable(app: AgentApp, _: str) -> Iterable[Choice]:
    from agent.cli.models import listed

    for row in listed(app.session.runtime.where):
        if row.usable:
            yield Choice(row.name, row.description)


async def pull(app: AgentApp, name: str) -> None:
    from agent.models.download import find

    app.rooms.pull(find(name).name)


def pullable(app: AgentApp, _: str) -> Iterable[Choice]:
    from agent.cli.models import listed

    for row in listed(app.session.runtime.where):
        if row.source == "hub":
            yield Choice(row.name, row.description)


COMMANDS = (
    Command("mcp", "the MCP servers: state, tools, costs", lambda app, _: app.rooms.servers()),
    Command(
        "mcp-import",
        "take over other programs' MCP servers",
        lambda app, _: app.rooms.imported(),
    ),
    Command("models", "known, found and downloadable models", lambda app, _: app.rooms.models()),
    Command("model", "another model answers from now on", model, "[NAME|PATH]", usable, idle=True),
    Command("pull", "download a model in the background", pull, "NAME", pullable),
    Command("sessions", "all conversations: search, open, rename, fork, delete", sessions),
    Command("resume", "go on with another conversation", resume, "[ID]", conversations, idle=True),
)
