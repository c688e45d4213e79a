"""The card of a tool call that waits for the person's approval."""

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

from tui.markdown.highlight import format_arguments, format_diff
from tui.util.format import display_text
from tui.widgets.text_stream import TextStream

if TYPE_CHECKING:
    from agent.events import AgentApprovalRequested
    from tools.types import Answer

ANSWERS: dict[str, Literal["once", "session", "always", "no"]] = {
    "y": "once",
    "a": "session",
    "A": "always",
    "n": "no",
}
REASON_KEY = "r"
ANSWER_HINT = "y once · a this session · A always here · n no · r no, because …"
ONCE_HINT = "y once · n no · r no, because …"
REASON_HINT = "Enter sends this no · Esc goes back"
FOCUS_DELAY_SECONDS = 0.5
"""Time without a key after which the card takes the focus: what is being typed is not meant for it."""


def change_text(request: AgentApprovalRequested) -> str | None:
    """Return the text to show in place of the arguments; None where they are shown themselves.

    That is the tool's preview of the call, behind the changes in the tool's definition since it was
    approved.
    """
    if not request.diff:
        return request.preview
    call = request.preview or request.arguments
    return "\n\n".join(filter(None, (request.reason, request.diff, call)))


def question_note(request: AgentApprovalRequested) -> str:
    """Return why the call asks, where it is not only that its tool always does, and what an answer for
    longer than once would allow: the rules as they are stored."""
    from tools.policy.approvals import ASK_REASON

    usual = not request.reason or request.reason == ASK_REASON or request.diff
    rules = "\n".join(f"      {rule}" for rule in request.rules or ())
    allows = f"a and A allow from now on:\n{rules}" if rules else ""
    return "\n".join(filter(None, ("" if usual else request.reason, allows)))


class ApprovalCard(Vertical, can_focus=True):
    """Asks whether a call may run; mounted while ``answer`` waits."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", show=False),
        *(
            Binding(key, f"scroll_arguments('{direction}')", show=False)
            for key, direction in (
                ("up", "up"), ("down", "down"), ("pageup", "page_up"), ("pagedown", "page_down"),
                ("home", "home"), ("end", "end"),
            )
        ),
    ]  # fmt: skip
    DEFAULT_CSS = """
    ApprovalCard {
        height: auto; padding: 0 1; border: round $warning;
        border-title-color: $text-warning; border-subtitle-color: $text-muted;
        & > TextStream { max-height: 40vh; }
        & > .keys { height: auto; color: $text-muted; }
        & > .note { height: auto; color: $text-warning; }
        /* Beside a height in cells, Textual would not clip the stream's height to what is left. */
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
        arguments: str,
        idle_seconds: Callable[[], float],
        *,
        change: str | None = None,
        note: str = "",
        once_only: bool = False,
    ) -> None:
        """``change``: text shown in place of the arguments. ``note``: text above the keys.
        ``once_only``: an answer cannot count for longer.

        ``idle_seconds`` returns the time since the person last pressed a key.
        """
        super().__init__()
        title = f"{display_text(server)} · {display_text(tool)}"
        self.border_title = Content(f"Run {title}?")
        if change:
            self._runs = format_diff(change)
        else:
            self._runs = format_arguments(display_text(arguments), title)
        self._idle_seconds = idle_seconds
        self._stream = TextStream(grows=True, follows=False)
        self._note, self._once_only = display_text(note), once_only
        self._hint = ONCE_HINT if once_only else ANSWER_HINT
        self._keys = Static(self._hint, classes="keys", markup=False)
        self._decided: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def compose(self) -> ComposeResult:
        yield self._stream
        if self._note:
            yield Static(self._note, classes="note", markup=False)
        yield self._keys

    def on_mount(self) -> None:
        self._stream.write_runs(self._runs)
        self._stream.can_focus = False
        self.set_timer(FOCUS_DELAY_SECONDS, self.focus_when_idle)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_remaining_lines)

    def _show_remaining_lines(self) -> None:
        more = self._stream.max_scroll_y
        self.border_subtitle = f"{more} more lines: ↑ ↓" if more else ""

    def focus_when_idle(self) -> None:
        """Take the focus as soon as no key was pressed for ``FOCUS_DELAY_SECONDS``."""
        if (left := FOCUS_DELAY_SECONDS - self._idle_seconds()) > 0:
            self.set_timer(left, self.focus_when_idle)
        else:
            self.focus()

    async def answer(self) -> Answer:
        """Wait for the person's decision."""
        return await self._decided

    def on_key(self, event: events.Key) -> None:
        if event.character in ANSWERS:
            choice = ANSWERS[event.character]
            if not (self._once_only and choice in ("session", "always")):
                self._decide(choice)
        elif event.character == REASON_KEY:
            self._open_reason_input()
        if event.is_printable:
            event.stop()  # nothing of it belongs into the prompt

    def _decide(self, choice: Literal["once", "session", "always", "no"], reason: str = "") -> None:
        from tools.types import Answer  # not needed before the first paint

        if not self._decided.done():
            self._decided.set_result(Answer(choice, reason))

    def _open_reason_input(self) -> None:
        if not self.query(Input):
            reason = Input(placeholder="Why not? The model reads it.")
            self.mount(reason, before=self._keys)
            self._keys.update(REASON_HINT)
            reason.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave Esc to the app, which stops the turn, unless a reason is being written."""
        return action != "back" or bool(self.query(Input))

    async def action_back(self) -> None:
        """Close the input of a reason, and return to the other answers."""
        await self.query(Input).remove()
        self._keys.update(self._hint)
        self.focus()

    def action_scroll_arguments(self, direction: str) -> None:
        """Scroll the arguments; ``direction``: ``up``, ``page_down``, ``home``, …"""
        getattr(self._stream, f"scroll_{direction}")(animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._decide("no", event.value.strip())
