"""What was asked and what came of it, in one of two views: live panes, or the record."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from tui.attachments import attached, folded
from tui.part import Part, thought
from tui.picking import KEYS
from tui.said import Said
from tui.widgets.call import FOLDED
from tui.widgets.panes import Panes
from tui.widgets.record import Record
from tui.words import count, seconds

PROMPT_LINES = 6
"""Of a longer prompt only so many lines are repeated in the conversation."""


class Exchange(Vertical):
    DEFAULT_CSS = """
    Exchange {
        height: auto;
        & > .prompt { height: auto; padding: 0 1; color: $text; text-style: bold; }
        & > .prompt.-picked { background: $panel; border-left: outer $accent; padding-left: 0; }
        & > .ending { height: auto; padding: 0 1; color: $text-muted; display: none; }
        & > .ending.-shown { display: block; }
        & > .ending.-failed { color: $text-error; }
        & > .ending.-stopped { color: $text-warning; }
        & > .footer { height: auto; padding: 0 1; margin-bottom: 1; color: $text-muted; }
        & > Record { margin: 1 1 0 1; }
    }
    """

    @dataclass
    class Pressed(Message):
        """A key, while this one is picked."""

        said: Said
        key: str

    def __init__(self, said: Said, *, panes: bool) -> None:
        super().__init__()
        self.said = said
        self._height = 0
        self._ended = ""
        self._view: Panes | Record = Panes(said) if panes else Record(said)
        self._prompt = Static(_prompt(said), classes="prompt", markup=False)
        self._ending = Static("", classes="ending", markup=False)
        self._footer = Static("", classes="footer", markup=False)
        self._footer.display = False

    def compose(self) -> ComposeResult:
        yield self._prompt
        yield self._view
        yield self._ending
        yield self._footer

    def on_mount(self) -> None:
        self.follow()

    async def reveal(self, part: Part | None) -> list[Widget]:
        """What shows this part (None: the prompt), in the conversation's view."""
        if part is None:
            return [self._prompt]
        await self.show_as(panes=False)
        return self._view.reveal(part) if isinstance(self._view, Record) else []

    def pick(self) -> None:
        """The next key is for this exchange."""
        self.can_focus = True
        self._prompt.add_class("-picked")
        self.screen.set_focus(self, scroll_visible=False)  # at once: the next key is for it
        self._prompt.scroll_visible(animate=False, top=True)

    def on_blur(self) -> None:
        self.can_focus = False
        self._prompt.remove_class("-picked")

    def on_key(self, event: events.Key) -> None:
        if self.has_focus and event.key in KEYS:
            self.post_message(self.Pressed(self.said, event.key))
            event.stop()

    @property
    def panes(self) -> bool:
        return isinstance(self._view, Panes)

    async def show_as(self, *, panes: bool) -> None:
        """Change the view; both are made from the same parts, so nothing is lost."""
        if panes == self.panes:
            return
        old, self._view = self._view, Panes(self.said) if panes else Record(self.said)
        with self.app.batch_update():
            await self.mount(self._view, after=old)
            await old.remove()
            self.follow()

    def follow(self) -> None:
        """Show what came since the last call."""
        self._view.follow()
        said = self.said
        ending = "\n".join(filter(None, [*said.notices, said.ending]))
        if ending != self._ended:
            self._ended = ending
            self._ending.update(Content(ending))
        if bool(ending) != self._ending.has_class("-shown"):
            self._ending.set_class(bool(ending), "-shown")
            self.call_after_refresh(self.fit, self._height)
        self._ending.set_class(said.status == "failed", "-failed")
        self._ending.set_class(said.status in ("cancelled", "incomplete"), "-stopped")
        # Shown and hidden one by one: a class on the exchange would restyle all that was ever said.
        if not said.running and not self.panes and not self._footer.display:
            self._footer.update(Content(_numbers(said)))
        self._footer.display = not said.running and not self.panes

    def fit(self, height: int) -> None:
        """Panes fill the screen; ``height``: rows that there are for the whole exchange."""
        self._height = height
        if isinstance(self._view, Panes):
            lines = self._prompt.size.height or 1
            below = self._ending.size.height if self._ending.has_class("-shown") else 0
            self._view.styles.height = max(8, height - lines - below)


def _prompt(said: Said) -> Content:
    lines = folded(said.prompt).strip("\n").split("\n")
    if len(lines) > PROMPT_LINES:
        rest = len(lines) - PROMPT_LINES + 1
        lines = [*lines[: PROMPT_LINES - 1], f"… {rest} more lines"]
    mark = "❯" if said.source == "app" else f"{said.source} ❯"
    if said.place:
        lines[-1] += f"  ‹{said.place[0]}/{said.place[1]}›"
    lines += [f"⎘ {path} · {size:,} lines" for path, size in attached(said.prompt)]
    return Content.assemble((f"{mark} ", "$accent"), "\n  ".join(lines))


def _numbers(said: Said) -> str:
    spent = thought(said.parts)
    words = [
        f"thought for {seconds(spent)}" if spent >= 0.05 else "",
        f"{count(said.tokens)} tokens" if said.tokens else "",
        f"{said.speed:.0f} tok/s" if said.speed else "",
    ]
    return " · ".join(filter(None, words))


def estimated(said: Said, width: int) -> int:
    """About how many rows its record takes."""
    rows = 3 + min(PROMPT_LINES, said.prompt.count("\n") + 1)
    for part in said.parts:
        match part.kind:
            case "reasoning":
                rows += 2
            case "call":
                rows += 3 + min(FOLDED, (part.result or "").count("\n") + 1)
            case _:
                text = part.whole or str(part.text)
                rows += 1 + text.count("\n") + len(text) // max(1, min(width, 120))
    return rows
