"""Picks a message of the conversation, and runs what the next key means for it. Imports
``tui.widgets.user_message`` late: it brings event types, which the first paint does without."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tui.app_context import AppContext
    from tui.controllers.chat import ChatController
    from tui.controllers.startup import Startup
    from tui.state.turn_view import TurnView


class MessagePicker:
    """Moves the focus from message to message; keys act on the picked one."""

    def __init__(self, app: AppContext, chat: ChatController, startup: Startup) -> None:
        self._app, self._chat, self._startup = app, chat, startup

    async def pick_latest(self) -> None:
        if turns := self._app.transcript.own_turns:
            await self._pick(turns[-1])

    async def keep_picked(self, change: Awaitable[None]) -> None:
        from tui.widgets.user_message import UserMessage

        focused = self._app.focused
        await change
        if isinstance(focused, UserMessage) and focused.turn in self._app.transcript.own_turns:
            await self._pick(focused.turn)

    async def handle_key(self, key: str) -> None:
        from tui.widgets.user_message import BRANCH_KEYS, COMMAND_KEYS, STEP_KEYS, UserMessage

        app, turns = self._app, self._app.transcript.own_turns
        message = app.focused
        if not isinstance(message, UserMessage) or message.turn not in turns:
            return
        turn = message.turn
        index = turns.index(turn)
        if key in BRANCH_KEYS:
            await self._chat.work.run(self._switch_branch(turn, BRANCH_KEYS[key]))
        elif key in STEP_KEYS and index + STEP_KEYS[key] < len(turns):
            await self._pick(turns[max(0, index + STEP_KEYS[key])])
        else:
            app.default_screen.set_focus(app.prompt)  # at once, before the next key
            if key in COMMAND_KEYS:
                await self._chat.submit(f"/{COMMAND_KEYS[key]} {index + 1}")

    async def _pick(self, turn: TurnView) -> None:
        from tui.widgets.user_message import COMMAND_KEYS

        turns = self._app.transcript.own_turns
        await self._app.transcript.pick(turn)
        number = f"message {turns.index(turn) + 1} of {len(turns)}"
        branch = "← → {}/{}".format(*turn.branch_position) if turn.branch_position else ""
        keys = " ".join(f"{key} {name}" for key, name in COMMAND_KEYS.items())
        self._app.prompt.hints.show(" · ".join(filter(None, [number, branch, keys, "Esc"])))

    async def _switch_branch(self, turn: TurnView, by: int) -> None:
        """Open the next (1) or previous (-1) branch that starts at this message."""
        app = self._app
        if turn.branch_position is None or turn.start is None:
            return
        if not self._chat.idle:
            app.notify("A turn is running: switch branches when it has ended.")
            return
        session = app.session
        position, branches = await session.storage.branches_at(session.conversation, turn.start)
        if not branches:  # deleted meanwhile
            return
        await session.open(branches[(position - 1 + by) % len(branches)])
        await self._startup.show_conversation()
        if same := [other for other in app.transcript.own_turns if other.start == turn.start]:
            await self._pick(same[0])
