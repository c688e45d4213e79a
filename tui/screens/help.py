"""The help page: all keys and commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import fill
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from agent.config.keys import KeyBindings, key_label
from tui.keymap import bind
from tui.screens.page import PageScreen
from tui.state.command import Command

PAGE_COLUMNS = 73
"""Columns of the page's text, which fits into a terminal of 80 columns."""
PAGE_TEXT = """\
Prompt
  Enter            send; while an answer runs it is queued
  @steer           send to the running turn now (empty: oldest queued)
  @answer          end the reasoning and have the answer now
  @newline         new line
  ↑ ↓              prompt history; takes a queued prompt back first
  @history         search your earlier prompts
  Esc              stop the answer; the partial answer is kept
  @editor          write in $EDITOR
  /  @             commands; files, whose text is sent with the prompt
  !                run a shell command as you, outside the sandbox;
                   its output goes with the next prompt; Esc undoes that

Conversation
  @select          select a message; ↑ ↓ move
    e r b c        edit it, retry it, branch before it, copy its answer
    t              edit what the model wrote; it continues from there
    w              show where its time went
    p              colour its texts by probability
    ← →            switch between versions
  @search          search: Enter, ↑ previous; ↓ next; Esc back

View
  @view            switch between live panes and conversation
  @next_tab        next tab of live API clients
  @previous_tab    previous tab
  @close_tab       close the tab (if the prompt is empty)
  @scroll_up       scroll up
  @scroll_down     scroll down
  @scroll_top      to the beginning
  @scroll_bottom   to the end
  Tab              focus the panes; arrows scroll the focused one
  @fold            open or fold all reasoning and long results
  @theme           next theme: dark, light, high-contrast, ansi
  @raw             raw: show the tokens that the model reads and writes
    Tab            go through them: ← → ↑ ↓, Home, End, search
    Enter          the likeliest others; Enter there continues from one
    p              colour the tokens by probability
  @palette         command palette
  @redraw          redraw the screen

Panels
  @sessions        conversations
  @models          models
  @mcp             MCP servers and tools

Copying
  @copy            the last answer
  @copy_code       its last code block
  mouse            selecting copies (Shift: terminal selection)

Quit
  Ctrl-Q           quit
  @quit            in an empty prompt, twice: quit
  Ctrl-C           stops the answer; clears the prompt; twice: quits
"""
"""``@NAME`` stands for the keys of an action (`agent.config.keys`)."""


def _key_section(bindings: KeyBindings) -> str:
    def fill_row(match: re.Match[str]) -> str:
        label, *more = map(key_label, bindings.keys(match[1]))
        others = f" (also {', '.join(more)})" if more else ""
        return f"  {label:16} {match[2]}{others}"

    return re.sub(r"^  @(\w+) +(.+)$", fill_row, PAGE_TEXT, flags=re.MULTILINE)


def _command_line(command: Command) -> str:
    name = f"  {f'/{command.name} {command.arguments}':28} "
    return fill(command.summary, PAGE_COLUMNS, initial_indent=name, subsequent_indent=" " * 31)


def _style_page(page: str) -> Content:
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
        bind("help", "dismiss"),
        Binding("question_mark", "dismiss", "Back", show=False),
    ]

    def __init__(
        self, commands: Sequence[Command], bindings: KeyBindings, instruction_files: Sequence[str]
    ) -> None:
        """``instruction_files``: the AGENTS.md files that the model reads."""
        files = "\n".join(f"  {name}" for name in instruction_files or ("no AGENTS.md",))
        lines = "\n".join(map(_command_line, commands))
        page = _style_page(
            f"{_key_section(bindings)}\nProject instructions\n{files}\n\nCommands\n{lines}"
        )
        super().__init__("Keys and commands", "Esc back", Static(page, markup=False))
