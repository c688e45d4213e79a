"""The pages over the conversation: keys and commands; what the model can do, and what it has done."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from agent.config.keys import KeyBindings, key_label
from agent.events import CodeInterpreterCallItem, Item, McpCallItem, WebSearchCallItem
from tui.guarded import GuardedDialog
from tui.keymap import bind
from tui.state.command import Command
from tui.util.format import display_text


class PageScreen(GuardedDialog[None]):
    """Shows a text in a frame; Esc goes back."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,enter", "dismiss", "Back", show=False)]
    DEFAULT_CSS = """
    PageScreen {
        & > VerticalScroll {
            width: 84; max-width: 100%; height: auto; max-height: 100%; scrollbar-size-vertical: 1;
            padding: 0 2; border: round $accent; background: $background;
            border-title-color: $accent; border-subtitle-color: $text-muted;
        }
    }
    """

    def __init__(self, title: str, hint: str, *parts: Static) -> None:
        """``hint``: the keys, named in the frame's lower edge. ``parts``: the text."""
        super().__init__()
        self._title, self._hint, self._parts = title, hint, parts

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title, box.border_subtitle = self._title, self._hint
            yield from self._parts


LATEST_CALLS = 10
MAX_CALL_CHARACTERS = 200


def calls_report(items: Iterable[Item]) -> dict[str, list[str]]:
    counts: Counter[str] = Counter()
    latest: list[str] = []
    for item in items:
        match item:
            case McpCallItem():
                name, text = f"{item.server_label}.{item.name}", item.arguments
            case CodeInterpreterCallItem():
                name, text = "python", item.code
            case WebSearchCallItem():
                name, text = "browser", " ".join(map(str, item.action.values()))
            case _:
                continue
        failed = " (failed)" if item.status == "failed" else ""
        counts[name] += 1
        latest.append(f"{name}{failed}  {' '.join(text.split())[:MAX_CALL_CHARACTERS]}")
    if not counts:
        return {"Done so far": ["called no tool"]}
    done = [f"{name}: {count} call{'' if count == 1 else 's'}" for name, count in counts.items()]
    return {"Done so far": done, "Latest calls": latest[-LATEST_CALLS:]}


class SafetyScreen(PageScreen):
    """Shows headings with their lines."""

    DEFAULT_CSS = "SafetyScreen .line { padding-left: 2; }"

    def __init__(self, report: Mapping[str, Sequence[str]], mcp_key: str) -> None:
        parts: list[Static] = []
        for heading, lines in report.items():
            parts.append(Static(Content.styled(heading, "bold $accent")))
            parts += [Static(display_text(line), markup=False, classes="line") for line in lines]
        hint = f"Esc back · {mcp_key} switches tools on and off"
        super().__init__("Capabilities of the model", hint, *parts)


PAGE_COLUMNS = 73
"""Columns of the page's text, which fits into a terminal of 80 columns."""
PAGE_TEXT = """\
Prompt
  Enter            send; while an answer runs it is queued
  @steer           send to the running turn now (empty: oldest queued)
  @answer          end the reasoning and have the answer now
  @newline         new line
  @mode            next mode: ask, plan (reads only), accept edits
  @undo            undo
  ↑ ↓              prompt history; takes a queued prompt back first
  @history         search your earlier prompts
  Esc              stop the answer; the partial answer is kept;
                   twice in an empty prompt: go back to a message
  @editor          write in $EDITOR
  /  @             commands; files, whose text is sent with the prompt
  !                run a shell command as you, outside the sandbox;
                   its output goes with the next prompt; Esc undoes that
  #                add the line to the project's AGENTS.md

Conversation
  @select          select a message; ↑ ↓ move
    e r b c        edit it, retry it, branch before it, copy its answer
    t              edit what the model wrote; it continues from there
    w              show where its time went
    p              colour its texts by probability
    u              go back to before it: conversation, files or both
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
  @suspend         suspend; fg in the shell returns

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
        more = f"Project instructions\n{files}\n\nCommands\n{lines}"
        page = _style_page(f"{_key_section(bindings)}\n{more}")
        super().__init__("Keys and commands", "Esc back", Static(page, markup=False))
