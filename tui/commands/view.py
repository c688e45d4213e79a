"""Commands on the program and its screen: theme, views, tabs of other programs, status, quitting."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from agent.errors import UserError
from tui.commands.context import CommandContext
from tui.commands.settings import choose
from tui.state.command import Command, CompletionItem

if TYPE_CHECKING:
    from agent.runtime.runtime import LoadedModel

MAX_INSTRUCTION_CHARACTERS = 200


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


async def leave(app: CommandContext, _: str) -> None:
    app.exit(0)


async def show_status(app: CommandContext, _: str) -> None:
    from agent.store.lookup import short_id
    from tui.widgets.notice import FieldsTable, NoticeEntries

    session = app.session
    runtime, options = session.runtime, session.options
    tools = list(filter(session.next_prompt.tool_selection.includes, runtime.host.tools()))
    servers = [
        state.name if state.status == "ready" else f"{state.name} ({state.status})"
        for state in runtime.host.server_states()
        if not state.is_builtin or state.status == "failed"
    ]
    used = session.next_prompt.token_count()
    sampling = options.sampling
    fields = {
        "Model": runtime.model.name + _model_note(runtime.loaded),
        "Context": f"{used or 0:,} of {runtime.context_length or 0:,} tokens",
        "Effort": options.effort,
        "Sampling": f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}",
        "Instructions": _shorten(options.instructions or "none"),
        "Project": options.project.names or "no AGENTS.md",
        "Tools": runtime.host.withheld or f"{len(tools)} on",
        "MCP servers": ", ".join(servers) or "none configured",
        "Folder": str(session.launch.root.absolute()),
        "Conversation": short_id(session.conversation.id)
        + ("" if session.storage.is_open else " (not stored)"),
        "Serving": session.serving.address if session.serving else "off (start with agent --serve)",
    }
    table = partial(FieldsTable, "Status", fields)
    app.transcript.add_section(NoticeEntries(table, 2 + len(fields)))


def _model_note(loaded: LoadedModel | None) -> str:
    """Where the model is, if that is not this process."""
    from agent.engine.shared.engine import SharedEngine

    if loaded is None:
        return " (not loaded)"
    engine = loaded.engine
    if isinstance(engine, SharedEngine) and engine.own is None:
        return f" (loaded by process {engine.owner})"
    return ""


def _shorten(instructions: str) -> str:
    line = " ".join(instructions.split())
    if len(line) <= MAX_INSTRUCTION_CHARACTERS:
        return line
    return f"{line[:MAX_INSTRUCTION_CHARACTERS]} … (/system shows all)"


_for_tab = partial(Command, for_visible_tab=True)
COMMANDS = (
    _for_tab("theme [NAME]", "change the theme", theme, themes),
    _for_tab(
        "view",
        "switch between live panes and conversation",
        lambda app, _: app.appearance.toggle_view(),
    ),
    _for_tab("fold", "open or fold all reasoning and results", fold),
    _for_tab(
        "raw",
        "show the tokens that the model reads and writes",
        lambda app, _: app.tokens.toggle_view(),
    ),
    _for_tab("served [N]", "next API client tab, or tab N", served, tabs),
    _for_tab("close", "close this API client's tab", lambda app, _: app.served_tabs.close()),
    _for_tab("answer", "end the reasoning in this tab and have the answer now", answer),
    _for_tab("stop", "stop the turn in this tab", stop),
    Command("status", "show model, context, options, tools and servers", show_status),
    Command("quit", "quit; the conversation is kept", leave),
    Command("exit", "the same as /quit", leave),
)
