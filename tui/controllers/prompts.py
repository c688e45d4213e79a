"""Asks the person for approvals and elicitations of a running turn, on cards above the prompt."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, TypeVar

from textual import events
from textual.widgets import Button

from tui.terminal.driver import notify_unfocused
from tui.widgets.prompt import PromptInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agent.events import AgentApprovalRequested
    from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
    from tools.mcp.login import LoginRequest
    from tools.types import Answer, Tool
    from tui.app_context import AppContext
    from tui.widgets.approval_card import ApprovalCard
    from tui.widgets.elicitation_form import ElicitationForm
    from tui.widgets.login_card import LoginCard

    Card = ApprovalCard | ElicitationForm | LoginCard

T = TypeVar("T")
FOCUS_CHECK_SECONDS = 0.1


class PromptCards:
    """Mounts a card for each question and waits for its answer."""

    focus_delay = 0.5
    """Seconds without a key after which a question takes the focus from an empty prompt."""
    early_key_delay = 0.5
    """Seconds after a question took the focus by itself in which Enter is not meant for it."""

    def __init__(self, app: AppContext) -> None:
        self._app = app
        self._cards: list[Card] = []  # the questions that wait for an answer, the oldest first
        self._took_focus_at = -math.inf
        """Monotonic time at which a question took the focus by itself last."""

    def enter(self) -> bool:
        """Move the focus to the question that waits longest; return whether there is one."""
        if not self._cards:
            return False
        self._cards[0].enter()
        return True

    @property
    def takes_letters(self) -> bool:
        """Whether letters are for a question; a button of it has no use for them."""
        on_button = isinstance(self._app.screen.focused, Button)
        return any(card.has_focus_within for card in self._cards) and not on_button

    @property
    def is_settling(self) -> bool:
        """Whether a question has only just taken the focus by itself: Enter is not meant for it yet."""
        return time.monotonic() - self._took_focus_at < self.early_key_delay

    def is_early(self, event: events.Key) -> bool:
        if event.key != "enter" or not self.is_settling:
            return False
        focused = self._app.screen.focused
        return focused is not None and any(card in focused.ancestors for card in self._cards)

    def resume(self) -> None:
        """Wait again after the app was suspended: an Enter behind Ctrl-Z was meant for the shell."""
        self._app.prompt.last_input_at = self._took_focus_at = time.monotonic()

    async def approve(self, tool: Tool, arguments: str) -> Answer:
        """Ask whether a call may run; an ``Approver`` of turns."""
        from tui.widgets.approval_card import ApprovalCard

        card = ApprovalCard(tool, arguments, self._request(tool, arguments), self._type)
        return await self._ask(card, card.answer)

    async def elicit(self, question: ElicitationRequest) -> ElicitationResult:
        from tui.widgets.elicitation_form import ElicitationForm

        card = ElicitationForm(question)
        return await self._ask(card, card.answer)

    async def log_in(self, request: LoginRequest) -> bool:
        """Offer the login that a server wants, and do it; an ``OnLogin`` of turns."""
        from tui.widgets.login_card import LoginCard

        card = LoginCard(request)
        return await self._ask(card, card.answer)

    def withdraw_logins(self) -> None:
        """Take back unanswered offers of logins: a turn's questions come first."""
        for card in self._cards:
            if withdraw := getattr(card, "withdraw", None):
                withdraw()

    async def _ask(self, card: Card, answer: Callable[[], Awaitable[T]]) -> T:
        """Keep the card above the prompt until ``answer`` returns; of several, the oldest shows."""
        app = self._app
        card.display = not self._cards
        self._cards.append(card)
        app.prompt.add_class("-asked")
        # In the body: there it takes no rows from the prompt and the status line.
        await app.body.mount(card)
        timer = app.set_interval(FOCUS_CHECK_SECONDS, self.enter_when_idle)
        notify_unfocused(app, "A question is waiting for your answer.")
        if app.screen is not app.default_screen:
            app.notify("A question is waiting for your answer; Esc goes back to it.")
        try:
            return await answer()
        finally:
            self._cards.remove(card)
            timer.stop()
            app.prompt.set_class(bool(self._cards), "-asked")
            if self._cards:
                self._cards[0].display = True
            if card.has_focus_within:  # else the person is somewhere else by now
                for prompt in app.query(PromptInput):  # none once the app is closing
                    prompt.focus()
            await card.remove()

    def enter_when_idle(self) -> None:
        """Move the focus to the question if the prompt is empty and no key was pressed lately."""
        prompt = self._app.prompt
        idle = time.monotonic() - prompt.last_input_at
        if prompt.has_focus and not prompt.text and idle >= self.focus_delay and self.enter():
            self._took_focus_at = time.monotonic()

    def _type(self, text: str) -> None:
        self._app.prompt.focus()
        self._app.prompt.insert(text)
        self._app.prompt.last_input_at = time.monotonic()

    def _request(self, tool: Tool, arguments: str) -> AgentApprovalRequested | None:
        from agent.events import AgentApprovalRequested

        turn, call = self._app.turn, (tool.server, tool.name, arguments)
        events = reversed(turn.log.events if turn else [])
        requests = (event for event in events if isinstance(event, AgentApprovalRequested))
        return next((r for r in requests if (r.server, r.tool, r.arguments) == call), None)
