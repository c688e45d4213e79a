"""What the person is asked while a turn runs: by a card above the prompt."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from tui.terminal.notifications import call
from tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from textual.widget import Widget

    from tools.mcp.client_requests import Elicitation, Elicited
    from tools.types import Answer, Tool
    from tui.app import AgentApp


class Asking:
    def __init__(self, app: AgentApp) -> None:
        self._app = app

    async def approve(self, tool: Tool, arguments: str) -> Answer:
        """Ask the person."""
        from tui.widgets.approval_card import Approval

        prompt = self._app.prompt
        card = Approval(
            tool.server, tool.name, arguments, lambda: time.monotonic() - prompt.pressed,
            change=self._change(tool, arguments),
        )  # fmt: skip
        async with self._shown(card):
            return await card.answer()

    async def ask(self, question: Elicitation) -> Elicited:
        """What a tool's server wants to know."""
        from tui.widgets.elicitation_form import Question

        card = Question(question)
        async with self._shown(card):
            return await card.answer()

    @contextlib.asynccontextmanager
    async def _shown(self, card: Widget) -> AsyncIterator[None]:
        """Above the prompt, as long as it waits."""
        app = self._app
        await app.default_screen.mount(card, before=app.queued)
        call(app, "A call waits for your answer.")
        if app.screen is not app.default_screen:
            app.notify("A call waits for your answer: Esc goes back to it.")
        try:
            yield
        finally:
            for prompt in app.query(Prompt):  # none any more while the app leaves
                prompt.focus()
            await card.remove()

    def _change(self, tool: Tool, arguments: str) -> str | None:
        """What the call that asks would change."""
        from agent.events import AgentApprovalRequested as Asked
        from tui.widgets.approval_card import change

        turn = self._app.turn
        for event in reversed(turn.log.events if turn else []):
            match event:
                case Asked(server=tool.server, tool=tool.name, arguments=given) if (
                    given == arguments
                ):
                    return change(event)
        return None
