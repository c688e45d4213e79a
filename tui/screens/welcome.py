"""The dialog of the first start: which model answers, and what else could."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from tui.util.format import display_text

if TYPE_CHECKING:
    from agent.models.listing import ModelRow
    from tools.config.importers import ClientServers
    from tui.controllers.context import AppContext

ENTER_DELAY_SECONDS = 0.5
"""Time in which Enter chooses nothing: it was meant for the prompt."""
MAX_LOCAL_MODELS = 3
"""Models of other programs that are offered; the screen of models has all."""
INTRODUCTION = (
    "answers here: the embedded demonstration model. It shows how everything works, thinking and"
    " tools included; it knows next to nothing. What would you like?"
)


@dataclass(frozen=True, slots=True)
class WelcomeOffer:
    """One choice of the dialog."""

    id: str
    """What to do: ``pull NAME``, ``run NAME``, ``models``, ``import``; empty: go on as it is."""
    text: str
    """The line that the person reads."""


def welcome_offers(
    rows: Sequence[ModelRow], importable: Sequence[ClientServers]
) -> list[WelcomeOffer]:
    """Choose what to offer, from all models and the MCP servers that other programs configure."""
    offers = [
        WelcomeOffer(
            f"run {row.name}",
            f"Let {row.name} answer: {row.source} has it ({_format_size(row.size)})",
        )
        for row in rows
        if row.runnable and row.source not in ("embedded", "file")
    ][:MAX_LOCAL_MODELS]
    offers += [
        WelcomeOffer(
            f"pull {row.name}",
            f"Download {row.name} in the background ({_download_size(row.description)})",
        )
        for row in rows
        if row.source == "hub"
    ][:1]
    offers.append(WelcomeOffer("models", "See all models"))
    if servers := {name for source in importable for name in source.entries}:
        clients = ", ".join(sorted({source.client for source in importable if source.entries}))
        offers.append(WelcomeOffer("import", f"Take over MCP servers: {clients} ({len(servers)})"))
    return [*offers, WelcomeOffer("", "Go on with tiny")]


def _download_size(description: str) -> str:
    """Return the size in a catalogue model's description, which ends with it."""
    return description.rpartition(", ")[2]


def _format_size(size: int | None) -> str:
    from agent.engine.placement.planner import format_bytes  # not needed before the first paint

    return format_bytes(size or 0)


class WelcomeScreen(ModalScreen[str]):
    """Shows offers; its result is the id of the chosen one.

    A key with a character closes it and goes into the prompt.
    """

    app: AppContext
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss('')", show=False),
        Binding("f1", "app.help", show=False),
    ]
    DEFAULT_CSS = """
    WelcomeScreen {
        align: center middle;
        & > Vertical {
            width: 76; max-width: 100%; height: auto; max-height: 100%; padding: 0 1;
            border: round $accent; background: $background;
            border-title-color: $accent; border-subtitle-color: $text-muted;
        }
        & Static { height: auto; margin-bottom: 1; }
        & OptionList {
            height: auto; padding: 0; border: none; background: $background;
            text-wrap: nowrap; text-overflow: ellipsis;
            &:focus { border: none; background-tint: $background 0%; }
            &:focus > .option-list--option-highlighted {
                background: $panel; color: $accent; text-style: bold;
            }
        }
    }
    """

    def __init__(self, model: str, offers: Sequence[WelcomeOffer]) -> None:
        super().__init__()
        self._model, self._offers = model, offers
        self._is_closed = False
        self._opened_at = 0.0
        """Monotonic time at which it was mounted."""

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Welcome"
            box.border_subtitle = "↑ ↓ Enter · Esc, or just write"
            yield Static(Content.assemble((self._model, "bold $accent"), f" {INTRODUCTION}"))
            options = [Option(display_text(o.text), id=o.id or "tiny") for o in self._offers]
            yield OptionList(*options, markup=False)

    def on_mount(self) -> None:
        self._opened_at = self.app.clock()
        self.query_one(OptionList).highlighted = 0

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character:
            event.stop()
            self.app.prompt.insert(event.character)
            self._close_with("")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if self._is_closed:
            self.app.prompt.action_send()
        elif self.app.clock() - self._opened_at > ENTER_DELAY_SECONDS:
            self._close_with("" if event.option_id == "tiny" else event.option_id or "")

    def _close_with(self, offer_id: str) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.dismiss(offer_id)
