"""What the command palette (Ctrl-P) offers: the commands, by what they do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand

if TYPE_CHECKING:
    from tui.app import AgentApp
    from tui.commands.registry import Command


def commands(app: AgentApp) -> Iterator[SystemCommand]:
    for command in app.talk.commands.all():
        # Searched in is the title alone.
        title = f"/{command.name}: {command.summary}"
        yield SystemCommand(title, "", partial(_run, app, command))


def _run(app: AgentApp, command: Command) -> None:
    """One that needs more than its name is left to be written."""
    if command.arguments and not command.arguments.startswith("["):
        app.prompt.replace_with(f"/{command.name} ")
    else:
        app.run_worker(app.talk.take(f"/{command.name}"))
