"""A call that waits for the person's yes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from tui.markdown.highlight import arguments, changes
from tui.util.format import shown
from tui.widgets.text_stream import Stream

if TYPE_CHECKING:
    from agent.events import AgentApprovalRequested
    from tools.types import Answer

ANSWERS: dict[str, Literal["once", "session", "always", "no"]] = {
    "y": "once",
    "a": "session",
    "A": "always",
    "n": "no",
}
REASON = "r"
KEYS = "y once · a this session · A always here · n no · r no, because …"
WHY_KEYS = "Enter sends this no · Esc goes back"
GRACE = 0.5
"""After so many seconds without a key it takes the focus: what is being typed is not meant for it."""


def change(asked: AgentApprovalRequested) -> str | None:
    """What the call would change; and how its tool has, since it was allowed."""
    if not asked.diff:
        return asked.preview
    return "\n\n".join(filter(None, (asked.reason, asked.diff, asked.preview or asked.arguments)))


class Approval(Vertical, can_focus=True):
    """``await answer()``; shown as long as it waits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", show=False),
        *(
            Binding(key, f"read('{how}')", show=False)
            for key, how in (
                ("up", "up"), ("down", "down"), ("pageup", "page_up"), ("pagedown", "page_down"),
                ("home", "home"), ("end", "end"),
            )
        ),
    ]  # fmt: skip
    DEFAULT_CSS = """
    Approval {
        height: auto; padding: 0 1; border: round $warning;
        border-title-color: $text-warning; border-subtitle-color: $text-muted;
        & > Stream { max-height: 40vh; }
        & > .keys { height: auto; color: $text-muted; }
        /* Beside a height in cells the stream's would count whole. */
        & > Input { height: auto; padding: 0; border: none; background: $panel; }
        & > Input:focus { border: none; }
        &:focus { border: heavy $warning; }
        &:focus > .keys { color: $text-warning; }
    }
    """

    def __init__(
        self,
        server: str,
        tool: str,
        given: str,
        quiet: Callable[[], float],
        *,
        change: str | None = None,
    ) -> None:
        """``given``: the arguments; ``change``: what is shown in their place.
        ``quiet``: for how many seconds the person has pressed no key."""
        super().__init__()
        title = f"{shown(server)} · {shown(tool)}"
        self.border_title = Content(f"Run {title}?")
        self._given = changes(change) if change else arguments(shown(given), title)
        self._quiet = quiet
        self._stream = Stream(grows=True, follows=False)
        self._keys = Static(KEYS, classes="keys", markup=False)
        self._decided: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def compose(self) -> ComposeResult:
        yield self._stream
        yield self._keys

    def on_mount(self) -> None:
        self._stream.write_runs(self._given)
        self._stream.can_focus = False
        self.set_timer(GRACE, self.take_focus)

    def on_resize(self) -> None:
        self.call_after_refresh(self._tell_more)

    def _tell_more(self) -> None:
        more = self._stream.max_scroll_y
        self.border_subtitle = f"{more} more lines: ↑ ↓" if more else ""

    def take_focus(self) -> None:
        """As soon as no key was pressed for long enough."""
        if (left := GRACE - self._quiet()) > 0:
            self.set_timer(left, self.take_focus)
        else:
            self.focus()

    async def answer(self) -> Answer:
        return await self._decided

    def on_key(self, event: events.Key) -> None:
        if event.character in ANSWERS:
            self._decide(ANSWERS[event.character])
        elif event.character == REASON:
            self._ask_why()
        if event.is_printable:
            event.stop()  # nothing of it belongs into the prompt

    def _decide(self, choice: Literal["once", "session", "always", "no"], reason: str = "") -> None:
        from tools.types import Answer

        if not self._decided.done():
            self._decided.set_result(Answer(choice, reason))

    def _ask_why(self) -> None:
        if not self.query(Input):
            why = Input(placeholder="Why not? The model reads it.")
            self.mount(why, before=self._keys)
            self._keys.update(WHY_KEYS)
            why.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "back" or bool(self.query(Input))

    async def action_back(self) -> None:
        """To the other answers; where no reason is being written, Esc stops the turn as always."""
        await self.query(Input).remove()
        self._keys.update(KEYS)
        self.focus()

    def action_read(self, how: str) -> None:
        getattr(self._stream, f"scroll_{how}")(animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._decide("no", event.value.strip())
