"""Asks the person for approvals and elicitations of a running turn, on cards above the prompt."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tui.terminal.notifications import notify_unfocused
from tui.widgets.prompt import PromptInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.widget import Widget

    from agent.events import AgentApprovalRequested
    from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
    from tools.types import Answer, Tool
    from tui.controllers.context import AppContext


class PromptCards:
    """Mounts a card for each question and waits for its answer."""

    def __init__(self, app: AppContext) -> None:
        self._app = app

    async def approve(self, tool: Tool, arguments: str) -> Answer:
        """Ask whether a call may run; an ``Approver`` of turns."""
        from tui.widgets.approval_card import ApprovalCard, change_text, question_note

        prompt, request = self._app.prompt, self._request(tool, arguments)
        card = ApprovalCard(
            tool.server, tool.name, arguments, lambda: time.monotonic() - prompt.last_input_at,
            change=change_text(request) if request else None,
            note=question_note(request) if request else "",
            once_only=request is not None and request.rules == [],
        )  # fmt: skip
        async with self._mounted(card):
            return await card.answer()

    async def elicit(self, question: ElicitationRequest) -> ElicitationResult:
        """Ask what an MCP server wants to know from the person (MCP elicitation)."""
        from tui.widgets.elicitation_form import ElicitationForm

        card = ElicitationForm(question)
        async with self._mounted(card):
            return await card.answer()

    @contextlib.asynccontextmanager
    async def _mounted(self, card: Widget) -> AsyncIterator[None]:
        """Keep the card above the prompt for the duration of the block."""
        app = self._app
        await app.default_screen.mount(card, before=app.queue_bar)
        notify_unfocused(app, "A call waits for your answer.")
        if app.screen is not app.default_screen:
            app.notify("A call waits for your answer: Esc goes back to it.")
        try:
            yield
        finally:
            for prompt in app.query(PromptInput):  # none once the app is closing
                prompt.focus()
            await card.remove()

    def _request(self, tool: Tool, arguments: str) -> AgentApprovalRequested | None:
        """The running turn's latest request for the approval of this call."""
        from agent.events import AgentApprovalRequested

        turn = self._app.turn
        for event in reversed(turn.log.events if turn else []):
            match event:
                case AgentApprovalRequested(server=tool.server, tool=tool.name) if (
                    event.arguments == arguments
                ):
                    return event
        return None
