"""The dialog of the first start: which model answers, and what else could."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from agent.engine.placement.planner import format_bytes
from agent.models.listing import ModelRow
from agent.models.machine import Machine, estimate_fit
from tools.config.importers import ClientServers
from tui.app_context import AppContext
from tui.keymap import bind
from tui.screens.dialogs import ListDialog
from tui.util.format import display_text

ENTER_DELAY_SECONDS = 0.5
"""Time in which Enter chooses nothing: it was meant for the prompt."""
MAX_LOCAL_MODELS = 3
"""Models of other programs that are offered; the screen of models has all."""
INTRODUCTION = (
    "answers here: the embedded demonstration model. It can calculate, and read, list and search"
    " files, and shows how everything works."
)


def _offer(id: str, text: str, details: str = "") -> Option:
    """``id``: ``ask PROMPT``, ``run NAME``, ``pull NAME``, ``models``, ``import``; empty: no change."""
    label = Content(display_text(text))
    if details:
        label = Content.assemble(label, "\n", (display_text(details), "$text-muted"))
    return Option(label, id)


def welcome_offers(
    model: str,
    examples: Sequence[str],
    rows: Sequence[ModelRow],
    importable: Sequence[ClientServers],
    machine: Machine,
    disk: int,
) -> list[Option]:
    """List offers, first what costs nothing. ``model``: the loaded one. ``disk``: free bytes."""
    offers = [_offer("", f"Continue with {model}")]
    offers += [_offer(f"ask {example}", f"Try: {example}") for example in examples]
    offers += [
        _offer(
            f"run {row.name}",
            f"Switch to {row.name}, from {row.source} ({format_bytes(row.size or 0)})",
        )
        for row in rows
        if row.runnable and row.source not in ("embedded", "file")
    ][:MAX_LOCAL_MODELS]
    offers += _download_offers(rows, machine, disk)
    offers.append(_offer("models", "See all models"))
    if servers := {name for source in importable for name in source.entries}:
        clients = ", ".join(sorted({source.client for source in importable if source.entries}))
        offers.append(_offer("import", f"Import MCP servers from {clients} ({len(servers)})"))
    return offers


def _download_offers(rows: Sequence[ModelRow], machine: Machine, disk: int) -> Iterator[Option]:
    """Offer the first download of the catalog that fits in memory; if none does, the first one."""
    sized = [(row, row.download_size) for row in rows if row.source == "hub" and row.download_size]
    estimates = [(row, size, estimate_fit(row.name, size, machine)) for row, size in sized]
    fitting = [estimate for estimate in estimates if estimate[2].fits]
    for row, size, fit in (fitting or estimates)[:1]:
        yield _offer(
            f"pull {row.name}",
            f"Download {row.name} …",
            f"  Size {format_bytes(size)}; {format_bytes(disk)} of disk free\n"
            f"  Memory {format_bytes(fit.memory)}; {format_bytes(fit.free)} free\n"
            f"  Speed {fit}",
        )


class WelcomeScreen(ListDialog):
    """Shows offers; its result is the chosen id. Text closes it and is for the prompt."""

    app: AppContext
    BINDINGS: ClassVar[list[BindingType]] = [bind("help", "app.help")]
    DEFAULT_CSS = """
    WelcomeScreen {
        & > Vertical { width: 76; max-height: 100%; }
        & OptionList {
            text-wrap: wrap; text-overflow: fold;
            & > .option-list--option-disabled { color: $foreground; }
        }
    }
    """

    def __init__(self, model: str, offers: Sequence[Option]) -> None:
        # In the list, with which it scrolls where rows are short.
        introduction = Content.assemble((model, "bold $accent"), f" {INTRODUCTION}\n")
        hint = "↑ ↓ Enter · Esc, or start typing"
        super().__init__("Welcome", hint, [Option(introduction, disabled=True), *offers], 1)
        self._opened_at = 0.0  # monotonic time at which it was mounted

    def on_mount(self) -> None:
        self._opened_at = self.app.clock()

    def on_resize(self) -> None:
        self.call_after_refresh(self.query_one(OptionList).scroll_to_highlight)

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character:
            event.stop()
            self.app.prompt.insert(event.character)
            self.dismiss()

    async def on_paste(self, event: events.Paste) -> None:
        event.stop()
        await self.app.prompt._on_paste(event)
        self.dismiss()

    def choose(self, option_id: str) -> None:
        if not self.is_current:  # it was closed before this key
            self.app.prompt.action_send()
        elif self.app.clock() - self._opened_at > ENTER_DELAY_SECONDS:
            self.dismiss(option_id)
