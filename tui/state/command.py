"""The slash commands by name, and how a line of the prompt is parsed into one. To add a command, write
an ``async def`` that takes ``CommandContext`` and argument, and list it in ``COMMANDS`` of its module,
for ``AgentApp.commands``; those of MCP servers and files come later."""

import difflib
import re
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from tools.types import Resource

_LINE = re.compile(r"/(?P<name>[\w.-]+(?::[\w.-]+)?)(?:\s+(?P<argument>.*))?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CompletionItem:
    """One entry of the completion menu."""

    text: str
    """The text that choosing it inserts."""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command: ``/name argument``. Its functions get the app first, until it is bound."""

    usage: str
    """Its name and, behind a blank, that of its argument, as ``effort low|medium|high``."""
    summary: str
    """One line, for the completion menu and F1."""
    run: Callable[..., Coroutine[Any, Any, None]]
    """Executes the command with the text behind its name. Raises UserError."""
    choices: Callable[..., Iterable[CompletionItem]] | None = None
    """Lists values for the argument typed so far; the completion filters and sorts them."""
    read_choices: Callable[..., Iterable[CompletionItem]] | None = None
    """The same where it may block: called in a thread. Together with ``choices``: for the last word."""
    waits_for_turn: bool = False
    """Whether it is queued, like a prompt, until no turn runs."""
    for_visible_tab: bool = False
    """Whether it acts on the visible tab; any other command first shows the own conversation."""

    @property
    def name(self) -> str:
        return self.usage.partition(" ")[0]

    @property
    def arguments(self) -> str:
        """The usage of the argument, as ``low|medium|high`` or ``[FILE]``; empty if it takes none."""
        return self.usage.partition(" ")[2]

    def bind(self, app: object) -> Self:
        choices, read = (each and partial(each, app) for each in (self.choices, self.read_choices))
        return replace(self, run=partial(self.run, app), choices=choices, read_choices=read)


class Commands:
    """The registry of slash commands, by name."""

    def __init__(self, commands: Iterable[Command]) -> None:
        self._commands = {command.name: command for command in commands}
        self._added_commands: dict[str, list[Command]] = {}
        self.resources: dict[str, list[Resource]] = {}
        """Those of each MCP server that has some, which complete a mention."""

    def replace(self, source: str, commands: Iterable[Command]) -> None:
        """Set the commands of an MCP server, or of files (""), in place of those that it had."""
        for command in self._added_commands.get(source, ()):
            self._commands.pop(command.name, None)
        self._added_commands[source] = list(commands)
        self._commands |= {command.name: command for command in self._added_commands[source]}

    def all(self) -> list[Command]:
        return sorted(self._commands.values(), key=lambda command: command.name)

    def find(self, name: str) -> Command | None:
        return self._commands.get(name)

    def is_for_visible_tab(self, text: str) -> bool:
        command = self.find(parsed[0]) if (parsed := parse_command(text)) else None
        return command is not None and command.for_visible_tab

    def nearest(self, name: str) -> str | None:
        """The most similar command name: one that starts with ``name``, else a close spelling."""
        begins = [command for command in sorted(self._commands) if command.startswith(name)]
        close = difflib.get_close_matches(name, self._commands, 1, cutoff=0.7)
        return next(iter(begins or close), None)

    def unknown_message(self, name: str) -> str:
        nearest = self.nearest(name)
        hint = f"Did you mean /{nearest}?" if nearest else "/help lists all."
        return f"There is no command /{name}. {hint}"


def parse_command(text: str) -> tuple[str, str] | None:
    """Split a command line into name and argument; None: no command, as ``/usr/bin`` or `` /x``."""
    if (match := _LINE.match(text)) is None:
        return None
    return match["name"], (match["argument"] or "").strip()


def parse_instruction(text: str) -> str | None:
    """The text behind the ``#`` of one line, which goes into AGENTS.md; None: a prompt, as one with
    ``##`` or a Markdown heading and what follows it."""
    if not text.startswith("#") or text.startswith("##") or len(text.splitlines()) > 1:
        return None
    return text[1:].strip()
