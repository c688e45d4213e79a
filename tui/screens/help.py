"""All keys, on one page."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = """\
Writing
  Enter            send; while an answer runs it is queued
  Ctrl-J           new line (Shift-Enter too, where the terminal tells)
  ↑ ↓              earlier prompts; a queued one comes back first
  Esc              stop the answer, keep what was said
  /compact         sent: a summary takes the place of earlier turns

Looking
  F2               four live panes, or the conversation
  F3               turns that came over HTTP, live
  PgUp PgDn        scroll; Ctrl-Home and Ctrl-End go to the edges
  Tab              into the panes: arrows scroll the one in front
  Ctrl-O           open or fold all reasoning and long results
  F4               light or dark

Copying
  Ctrl-Y           the last answer
  Ctrl-C           what the mouse marked (with Shift: the terminal's own)

Leaving
  Ctrl-Q           at once
  Ctrl-C           stops the answer; clears the prompt; twice: leaves
"""


class Help(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "Back", show=False)
    ]
    DEFAULT_CSS = """
    Help {
        align: center middle;
        & > VerticalScroll {
            width: 84; max-width: 100%; height: auto; max-height: 100%; scrollbar-size-vertical: 1;
            padding: 0 2; border: round $accent; background: $background;
            border-title-color: $accent; border-subtitle-color: $text-muted;
        }
        & Static { color: $foreground; }
    }
    """

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = "Keys"
            box.border_subtitle = "Esc goes back"
            yield Static(KEYS.rstrip(), markup=False)
