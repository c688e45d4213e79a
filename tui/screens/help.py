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
Writing
  Enter            send; while an answer runs it is queued
  Ctrl-S           tell it the turn that runs; empty: what waits
  Ctrl-J           new line (Shift-Enter too, where the terminal tells)
  ↑ ↓              earlier prompts; one that waits comes back first
  Esc              stop the answer, keep what was said
  Ctrl-G           write in $EDITOR
  /  @             commands; files, whose text is sent with the prompt

What was said
  Ctrl-↑           pick a message (Alt-↑ too): ↑ ↓ go on from there
    e r b c        edit it, retry it, branch before it, copy its answer
    ← →            its other versions, where it has some
  Ctrl-F           search: Enter, ↑ before; ↓ next; Esc back

Looking
  F2               four live panes, or the conversation
  F3               conversations of other programs, live: the next tab
  Ctrl-PgUp PgDn   the tab before, the next
  Ctrl-W           close that tab, while nothing is written
  PgUp PgDn        scroll; Ctrl-Home and Ctrl-End go to the edges
  Tab              into the panes: arrows scroll the one in front
  Ctrl-O           open or fold all reasoning and long results
  F4               another theme: dark, light, high-contrast, ansi
  F8               raw: the tokens that the model reads and writes
  Ctrl-P           the palette: all commands, to search in

Rooms
  F5 F6 F7         all conversations; models; MCP servers and tools

Copying
  Ctrl-Y Alt-Y     the last answer; its last code block
  mouse            what is marked is copied (with Shift: the terminal's own)

Leaving
  Ctrl-Q           at once
  Ctrl-C           stops the answer; clears the prompt; twice: leaves
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
