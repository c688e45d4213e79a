"""Going through what was said: one exchange is picked, and the next key says what to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tui.app import AgentApp
    from tui.state.turn_view import Said

COMMANDS = {"e": "edit", "r": "retry", "b": "branch", "c": "copy"}
"""Keys, and the commands that are run with the exchange's number."""
STEPS = {
    "up": -1, "ctrl+up": -1, "alt+up": -1, "down": 1, "ctrl+down": 1, "alt+down": 1,
}  # fmt: skip
TURNS = {"left": -1, "right": 1}
KEYS = {*COMMANDS, *STEPS, *TURNS, "escape", "enter"}
"""What is meant for an exchange; any other key goes where it would go otherwise."""


class Picking:
    def __init__(self, app: AgentApp) -> None:
        self._app = app

    async def latest(self) -> None:
        """Begin with what was asked last."""
        if messages := self._app.chat.messages:
            await self._pick(messages[-1])

    async def keep(self, change: Awaitable[None]) -> None:
        """What is picked is picked after it, too."""
        from tui.widgets.user_message import Asked

        focused = self._app.focused
        await change
        if isinstance(focused, Asked) and focused.said in self._app.chat.messages:
            await self._pick(focused.said)

    async def press(self, said: Said, key: str) -> None:
        """A key for the exchange that is picked."""
        app, messages = self._app, self._app.chat.messages
        if said not in messages:
            return
        at = messages.index(said)
        if key in TURNS:
            await self._switch(said, TURNS[key])
        elif key in STEPS and at + STEPS[key] < len(messages):
            await self._pick(messages[max(0, at + STEPS[key])])
        else:
            app.prompt.focus()
            if key in COMMANDS:
                await app.talk.take(f"/{COMMANDS[key]} {at + 1}")

    async def _pick(self, said: Said) -> None:
        messages = self._app.chat.messages
        await self._app.chat.pick(said)
        number = f"message {messages.index(said) + 1} of {len(messages)}"
        place = f"← → {said.place[0]}/{said.place[1]}" if said.place else ""
        words = [number, *(f"{key} {name}" for key, name in COMMANDS.items()), place, "Esc"]
        self._app.prompt.hint(" · ".join(filter(None, words)))

    async def _switch(self, said: Said, by: int) -> None:
        """To what else was said here."""
        app = self._app
        if said.place is None or said.start is None:
            return
        if not app.talk.free:
            app.notify("A turn runs: the other branches are there when it has ended.")
            return
        at, others = app.session.alternatives(said.start)
        app.session.open(others[(at - 1 + by) % len(others)])
        await app.show_conversation()
        if same := [one for one in app.chat.messages if one.start == said.start]:
            await self._pick(same[0])
