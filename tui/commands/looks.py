"""Commands on what the screen shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tui.commands.registry import Choice, Command

if TYPE_CHECKING:
    from tui.app import AgentApp


async def theme(app: AgentApp, name: str) -> None:
    from agent.errors import UserError

    if not name:
        app.action_theme()
    elif name not in app.available_themes:
        raise UserError(f"There is no theme {name}; /theme and a blank lists them.")
    else:
        app.choose_theme(name)


def themes(app: AgentApp, _: str) -> Iterable[Choice]:
    from tui import theme

    ours = [one.name for one in theme.ALL]
    for name in [*ours, *sorted(app.available_themes.keys() - ours)]:
        yield Choice(name, "the one that is shown" if name == app.theme else "")


async def view(app: AgentApp, _: str) -> None:
    await app.action_view()


async def fold(app: AgentApp, _: str) -> None:
    app.action_fold()


async def raw(app: AgentApp, _: str) -> None:
    await app.action_raw()


async def served(app: AgentApp, _: str) -> None:
    app.action_served()


COMMANDS = (
    Command("theme", "other colours, from now on", theme, "[NAME]", themes),
    Command("view", "four live panes, or the conversation", view),
    Command("fold", "open or fold all reasoning and results", fold),
    Command("raw", "the tokens that the model reads and writes", raw),
    Command("served", "the turns of other programs, live; or back", served),
)
