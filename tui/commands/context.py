"""The app as slash commands see it, how commands are made of functions that take it, and Textual's
command palette (Ctrl-P), which lists them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand

from tui.app_context import AppContext
from tui.state.command import Command, CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from tui.controllers.appearance import Appearance
    from tui.controllers.chat import ChatController
    from tui.controllers.message_picker import MessagePicker
    from tui.controllers.navigation import Navigator
    from tui.controllers.served_tabs import ServedTabs
    from tui.controllers.startup import Startup
    from tui.controllers.token_explorer import TokenExplorer


class CommandContext(AppContext):
    """The app with its controllers, as commands and the main screen see it."""

    appearance: Appearance
    chat: ChatController
    message_picker: MessagePicker
    navigator: Navigator
    served_tabs: ServedTabs
    startup: Startup
    tokens: TokenExplorer


def app_command(
    app: CommandContext,
    usage: str,
    summary: str,
    run: Callable[[CommandContext, str], Coroutine[Any, Any, None]],
    choices: Callable[[CommandContext, str], Iterable[CompletionItem]] | None = None,
    read_choices: Callable[[CommandContext], Iterable[CompletionItem]] | None = None,
    **flags: bool,
) -> Command:
    """Make a `Command`, all of whose functions get the app first. ``usage``: name and arguments."""
    name, _, arguments = usage.partition(" ")
    return Command(
        name,
        summary,
        partial(run, app),
        arguments,
        partial(choices, app) if choices else None,
        partial(read_choices, app) if read_choices else None,
        **flags,
    )


def palette_commands(app: CommandContext) -> Iterator[SystemCommand]:
    for command in app.commands.all():
        # The palette searches the title alone, so the summary is part of it.
        title = f"/{command.name}: {command.summary}"
        yield SystemCommand(title, "", partial(_run_command, app, command))


def _run_command(app: CommandContext, command: Command) -> None:
    """Run a command; one that needs an argument is put into the prompt instead."""
    if command.arguments and not command.arguments.startswith("["):
        app.prompt.replace_with(f"/{command.name} ")
    else:
        app.run_worker(app.chat.submit(f"/{command.name}"))
