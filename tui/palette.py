"""The entries of Textual's command palette (Ctrl-P): the slash commands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.app import SystemCommand

from tui.commands.context import CommandContext
from tui.state.command import Command


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
