"""The first start: what answers here, and what could instead."""

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

from tui.util.format import shown

if TYPE_CHECKING:
    from agent.cli.models import Row
    from tools.config.importers import Found
    from tui.app import AgentApp

GRACE = 0.5
"""Seconds in which Enter chooses nothing: it was meant for the prompt."""
MOST = 3
"""Of models that other programs keep so many are offered; the room of models has all."""
ANSWERS = (
    "answers here: the embedded demonstration model. It shows how everything works, thinking and"
    " tools included; it knows next to nothing. What would you like?"
)


@dataclass(frozen=True, slots=True)
class Offer:
    id: str
    """``pull NAME``, ``run NAME``, ``models``, ``import``; empty: nothing."""
    text: str


def offers(rows: Sequence[Row], found: Sequence[Found]) -> list[Offer]:
    """What can be offered here. ``rows``: all models; ``found``: other programs' MCP servers."""
    made = [
        Offer(f"run {row.name}", f"Let {row.name} answer: {row.source} has it ({_size(row.size)})")
        for row in rows
        if row.usable and row.source not in ("embedded", "file")
    ][:MOST]
    made += [
        Offer(
            f"pull {row.name}",
            f"Download {row.name} in the background ({_end(row.description)})",
        )
        for row in rows
        if row.source == "hub"
    ][:1]
    made.append(Offer("models", "See all models"))
    if servers := {name for one in found for name in one.entries}:
        clients = ", ".join(sorted({one.client for one in found if one.entries}))
        made.append(Offer("import", f"Take over MCP servers: {clients} ({len(servers)})"))
    return [*made, Offer("", "Go on with tiny")]


def _end(description: str) -> str:
    """How large it is comes last."""
    return description.rpartition(", ")[2]


def _size(size: int | None) -> str:
    from agent.engine.placement.planner import gigabytes

    return gigabytes(size or 0)


class First(ModalScreen[str]):
    """Its result: an offer's id. Whoever writes instead, writes into the prompt."""

    app: AgentApp
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss('')", show=False),
        Binding("f1", "app.help", show=False),
    ]
    DEFAULT_CSS = """
    First {
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

    def __init__(self, model: str, made: Sequence[Offer]) -> None:
        super().__init__()
        self._model, self._offers = model, made
        self._left = False

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = "Welcome"
            box.border_subtitle = "↑ ↓ Enter · Esc, or just write"
            yield Static(Content.assemble((self._model, "bold $accent"), f" {ANSWERS}"))
            options = [Option(shown(one.text), id=one.id or "tiny") for one in self._offers]
            yield OptionList(*options, markup=False)

    def on_mount(self) -> None:
        self._since = self.app.clock()
        self.query_one(OptionList).highlighted = 0

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character:
            event.stop()
            self.app.prompt.insert(event.character)
            self._leave("")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if self._left:
            self.app.prompt.action_send()
        elif self.app.clock() - self._since > GRACE:
            self._leave("" if event.option_id == "tiny" else event.option_id or "")

    def _leave(self, wish: str) -> None:
        if not self._left:
            self._left = True
            self.dismiss(wish)
