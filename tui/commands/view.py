"""Commands on the screen: theme, views, tabs of other programs, what the visible turn is to do."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from agent.errors import UserError
from tui.commands.context import CommandContext, app_command
from tui.commands.settings import choose
from tui.state.command import Command, CompletionItem


async def theme(app: CommandContext, name: str) -> None:
    if not name:
        choose(app, "Theme", themes(app, ""), app.theme, partial(theme, app))
    elif name not in app.available_themes:
        raise UserError(f"There is no theme {name}; /theme lists them.")
    else:
        app.appearance.choose_theme(name)


def themes(app: CommandContext, _: str) -> Iterable[CompletionItem]:
    from tui.theme import THEMES

    own = [theme.name for theme in THEMES]
    for name in [*own, *sorted(app.available_themes.keys() - own)]:
        yield CompletionItem(name, "the current tab" if name == app.theme else "")


async def fold(app: CommandContext, _: str) -> None:
    app.live.visible_transcript.toggle_folds()


async def served(app: CommandContext, number: str) -> None:
    if not number:
        await app.served_tabs.show_next(1)
    elif number in map(str, range(len(app.served_tabs.tabs) + 1)):
        await app.served_tabs.show_number(int(number))
    else:
        raise UserError(f"There is no tab {number}; /served lists them.")


def tabs(app: CommandContext, _: str) -> Iterable[CompletionItem]:
    for number, tab in enumerate(app.served_tabs.tabs, 1):
        yield CompletionItem(str(number), f"{tab.state} · {tab.title}")
    yield CompletionItem("0", "your own conversation")


async def answer(app: CommandContext, _: str) -> None:
    """End the reasoning of the visible turn, another program's too, which then answers."""
    turn = app.turn if app.live.tab is None else app.live.tab.turn
    done = turn is not None and turn.answer_now()
    app.notify("Answering without further reasoning." if done else "No turn is reasoning here.")


async def stop(app: CommandContext, _: str) -> None:
    tab = app.live.tab
    turn = app.turn if tab is None else tab.turn
    if turn is None:
        app.notify("No turn is running here.")
    elif tab is None:
        app.chat.stop()
    else:
        turn.stop()


def commands(app: CommandContext) -> tuple[Command, ...]:
    command = partial(app_command, app)
    for_tab = partial(command, for_visible_tab=True)
    return (
        for_tab("theme [NAME]", "change the theme", theme, themes),
        for_tab(
            "view",
            "switch between live panes and conversation",
            lambda app, _: app.appearance.toggle_view(),
        ),
        for_tab("fold", "open or fold all reasoning and results", fold),
        for_tab(
            "raw",
            "show the tokens that the model reads and writes",
            lambda app, _: app.tokens.toggle_view(),
        ),
        for_tab("served [N]", "next API client tab, or tab N", served, tabs),
        for_tab("close", "close this API client's tab", lambda app, _: app.served_tabs.close()),
        for_tab("answer", "end the reasoning in this tab and have the answer now", answer),
        for_tab("stop", "stop the turn in this tab", stop),
    )
