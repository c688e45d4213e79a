"""What a person asks of the app by its name: a line that begins with a slash.

A module that has commands ends with ``COMMANDS``, a tuple of them, and is named in ``known``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tui.app import AgentApp

_LINE = re.compile(r"/(?P<name>[\w.-]+(?::[\w.-]+)?)(?:\s+(?P<argument>.*))?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a completion offers."""

    text: str
    """What is written where it is taken."""
    about: str = ""
    """Shown beside it."""


@dataclass(frozen=True, slots=True)
class Command:
    """``/name argument``."""

    name: str
    summary: str
    """One line, for the popup and F1."""
    run: Callable[[AgentApp, str], Awaitable[None]]
    """With what stands behind the name. Raises UserError with a sentence."""
    arguments: str = ""
    """How they are written: ``low|medium|high``, ``[FILE]``; empty: there are none."""
    choices: Callable[[AgentApp, str], Iterable[Choice]] | None = None
    """What the arguments may be, as far as they are written; matched and sorted by the popup."""
    idle: bool = False
    """It waits, like a prompt, until no turn runs."""
    looks: bool = False
    """It is for the tab that is looked at; any other brings the person's own conversation back."""


class Commands:
    """By their names."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self._commands: dict[str, Command] = {}
        self._theirs: dict[str, list[Command]] = {}
        self._commands |= {command.name: command for command in commands}

    def replace(self, server: str, commands: Iterable[Command]) -> None:
        """These are a server's now, and no others."""
        for command in self._theirs.get(server, ()):
            self._commands.pop(command.name, None)
        self._theirs[server] = list(commands)
        self._commands |= {command.name: command for command in self._theirs[server]}

    def all(self) -> list[Command]:
        return sorted(self._commands.values(), key=lambda command: command.name)

    def find(self, name: str) -> Command | None:
        return self._commands.get(name)

    def looks(self, text: str) -> bool:
        """What is written is a command for the tab that is looked at."""
        command = self.find(asked[0]) if (asked := parse(text)) else None
        return command is not None and command.looks

    def nearest(self, name: str) -> str | None:
        """The command that was probably meant."""
        begins = [known for known in sorted(self._commands) if known.startswith(name)]
        close = difflib.get_close_matches(name, self._commands, 1, cutoff=0.5)
        return next(iter(begins or close), None)

    def unknown(self, name: str) -> str:
        """A sentence for who wrote it."""
        nearest = self.nearest(name)
        hint = f"did you mean /{nearest}?" if nearest else "/help lists all."
        return f"There is no command /{name}; {hint}"


def known() -> Commands:
    """All commands of the app."""
    from tui.commands import app, conversation, navigation, settings
    from tui.commands import view as looks

    modules = (conversation, settings, navigation, looks, app)
    return Commands(command for module in modules for command in module.COMMANDS)


def parse(text: str) -> tuple[str, str] | None:
    """Name and argument of a line that is a command; a path (``/usr/bin``) is none, nor is a text
    with a blank before the slash."""
    if (found := _LINE.match(text)) is None:
        return None
    return found["name"], (found["argument"] or "").strip()
