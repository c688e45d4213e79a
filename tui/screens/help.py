"""All keys and commands, on one page."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.commands.registry import Command

WIDTH = 73
"""Columns of the page in a terminal of 80."""
KEYS = """\
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


def _listed(commands: Sequence[Command]) -> str:
    return "\n".join(["", "Commands", *map(_line, commands)])


def _line(command: Command) -> str:
    """What it does stands in its own column, also where that takes two rows."""
    name = f"  {f'/{command.name} {command.arguments}':28} "
    return fill(command.summary, WIDTH, initial_indent=name, subsequent_indent=" " * 31)


def _coloured(page: str) -> Content:
    """Headings told from keys, keys from what they do."""
    parts: list[tuple[str, str]] = []
    for line in page.splitlines(keepends=True):
        wide = line.find("  ", 6) if line.startswith(" ") else 0
        parts += [
            (line[:wide], "bold $text"),
            (line[wide:], "$text-muted" if wide else "bold $accent"),
        ]
    return Content.assemble(*(part for part in parts if part[0]))


class Help(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,question_mark,q,enter", "dismiss", "Back", show=False)
    ]
    DEFAULT_CSS = """
    Help {
        align: center middle;
        & > VerticalScroll {
            width: 84; max-width: 100%; height: auto; max-height: 100%; scrollbar-size-vertical: 1;
            padding: 0 2; border: round $accent; background: $background;
            border-title-color: $accent; border-subtitle-color: $text-muted;
        }
    }
    """

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self._commands = commands

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Keys and commands"
            box.border_subtitle = "Esc goes back"
            yield Static(_coloured(f"{KEYS}{_listed(self._commands)}"), markup=False)
