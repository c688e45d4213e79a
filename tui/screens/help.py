"""The help page: all keys and commands."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from tui.commands.registry import Command
from tui.screens.page import PageScreen

PAGE_COLUMNS = 73
"""Columns of the page's text, which fits into a terminal of 80 columns."""
KEY_HELP = """\
Prompt
  Enter            send; while an answer runs it is queued
  Ctrl-S           send to the running turn now (empty: the oldest queued)
  Ctrl-J           new line (also Shift-Enter, if the terminal reports it)
  ↑ ↓              prompt history; takes a queued prompt back first
  Esc              stop the answer; the partial answer is kept
  Ctrl-G           write in $EDITOR
  /  @             commands; files, whose text is sent with the prompt

Conversation
  Ctrl-↑           select a message (or Alt-↑); ↑ ↓ move
    e r b c        edit it, retry it, branch before it, copy its answer
    ← →            switch between versions
  Ctrl-F           search: Enter, ↑ before; ↓ next; Esc back

View
  F2               switch between live panes and conversation
  F3               next tab (live API clients)
  Ctrl-PgUp PgDn   previous, next tab
  Ctrl-W           close the tab (if the prompt is empty)
  PgUp PgDn        scroll; Ctrl-Home and Ctrl-End go to the edges
  Tab              focus the panes; arrows scroll the focused one
  Ctrl-O           open or fold all reasoning and long results
  F4               next theme: dark, light, high-contrast, ansi
  F8               raw: show the tokens that the model reads and writes
  Ctrl-P           command palette

Panels
  F5 F6 F7         conversations; models; MCP servers and tools

Copying
  Ctrl-Y Alt-Y     the last answer; its last code block
  mouse            selecting copies (Shift: terminal selection)

Quit
  Ctrl-Q           quit
  Ctrl-C           stops the answer; clears the prompt; twice: quits
"""


def _command_section(commands: Sequence[Command]) -> str:
    return "\n".join(["", "Commands", *map(_command_line, commands)])


def _command_line(command: Command) -> str:
    """Describe a command in two columns, the second wrapped within its own."""
    name = f"  {f'/{command.name} {command.arguments}':28} "
    return fill(command.summary, PAGE_COLUMNS, initial_indent=name, subsequent_indent=" " * 31)


def _style_page(page: str) -> Content:
    """Style headings, keys, and what the keys do."""
    parts: list[tuple[str, str]] = []
    for line in page.splitlines(keepends=True):
        key_columns = line.find("  ", 6) if line.startswith(" ") else 0
        parts += [
            (line[:key_columns], "bold $text"),
            (line[key_columns:], "$text-muted" if key_columns else "bold $accent"),
        ]
    return Content.assemble(*(part for part in parts if part[0]))


class HelpScreen(PageScreen):
    """Shows the keys, and the commands that there are."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1,question_mark", "dismiss", "Back", show=False)
    ]

    def __init__(self, commands: Sequence[Command]) -> None:
        page = _style_page(f"{KEY_HELP}{_command_section(commands)}")
        super().__init__("Keys and commands", "Esc goes back", page)
