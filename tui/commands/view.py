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


async def served(app: AgentApp, number: str) -> None:
    from agent.errors import UserError

    if not number:
        await app.action_served(1)
    elif number in map(str, range(len(app.watching.tabs) + 1)):
        await app.watching.pick(int(number))
    else:
        raise UserError(f"There is no tab {number}; /served and a blank lists them.")


def tabs(app: AgentApp, _: str) -> Iterable[Choice]:
    for number, tab in enumerate(app.watching.tabs, 1):
        yield Choice(str(number), f"{tab.state} · {tab.title}")
    yield Choice("0", "your own conversation")


async def close(app: AgentApp, _: str) -> None:
    await app.watching.close()


async def stop(app: AgentApp, _: str) -> None:
    looked = app.watching.looked
    turn = app.turn if looked is None else looked.turn
    if turn is None:
        app.notify("Nothing runs here.")
    elif looked is None:
        app.talk.stop()
    else:
        turn.stop()


COMMANDS = (
    Command("theme", "other colours, from now on", theme, "[NAME]", themes, looks=True),
    Command("view", "four live panes, or the conversation", view, looks=True),
    Command("fold", "open or fold all reasoning and results", fold, looks=True),
    Command("raw", "the tokens that the model reads and writes", raw, looks=True),
    Command(
        "served",
        "the turns of other programs, live: the next tab, or this",
        served,
        "[N]",
        tabs,
        looks=True,
    ),
    Command("close", "the tab of another program that is looked at", close, looks=True),
    Command("stop", "the turn that is looked at, another program's too", stop, looks=True),
)
