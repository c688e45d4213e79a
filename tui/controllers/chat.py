"""What the person sends, when its turn comes, and the turn that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from textual.content import Content

from tui.commands.registry import Choice, Commands, known, parse
from tui.terminal.notifications import call

if TYPE_CHECKING:
    from agent.turn.loop import Turn
    from tui.app import AgentApp
    from tui.state.turn_view import Said
    from tui.util.completion import Completion


class Talk:
    """One turn at a time; what is sent meanwhile waits above the prompt."""

    def __init__(self, app: AgentApp) -> None:
        self._app = app
        self.turn: Turn | None = None
        """The person's own turn that runs."""
        self.said: Said | None = None
        """The exchange that runs, or that ran last."""
        self.latest: Turn | None = None
        """Its turn."""
        self.editing: Said | None = None
        """What is sent next takes the place of this exchange, in a branch."""

    @cached_property
    def commands(self) -> Commands:
        return known()

    def completion(self) -> Completion:
        """What the prompt may go on with."""
        from tui.util.completion import Completion
        from tui.util.file_index import Files

        def arguments(name: str, written: str) -> Iterable[Choice]:
            command = self.commands.find(name)
            return command.choices(self._app, written) if command and command.choices else ()

        return Completion(self.commands, Files(self._app.session.shared.root), arguments)

    @property
    def free(self) -> bool:
        """What is sent now is answered now."""
        return self._app.begun and self.turn is None

    async def take(self, text: str) -> None:
        """The person sent it."""
        waits = True
        if asked := parse(text):
            if (command := self.commands.find(asked[0])) is None:
                self._back(text, self.commands.unknown(asked[0]))
                return
            waits = command.idle
        elif (whole := await self._attached(text)) is None:
            return
        else:
            text = whole
        if asked is None and self.editing is not None:
            await self._edited(self.editing, text)
        elif self.free or (self._app.begun and not waits):
            await self._begin(text)
        else:
            self._app.queued.add(text)

    def edit(self, said: Said | None) -> None:
        """Write it anew; None: leave it as it is."""
        self.editing = said
        prompt = self._app.prompt
        if said is not None:
            prompt.replace_with(said.sent)
        prompt.border_title = Content("editing · Esc leaves it as it is" if said else "")

    async def _edited(self, said: Said, text: str) -> None:
        if self.turn is not None:
            self._back(text, "A turn runs: stop it, or wait for it, and send this then.")
            return
        self.edit(None)
        await self.again(said, text)

    async def again(self, said: Said, text: str) -> None:
        """Ask this instead of what was asked there, in a branch."""
        app = self._app
        if said in app.chat.messages and said.start is not None:
            app.session.branch(said.start)
            await app.chat.cut(said)
        await self.ask(text)

    async def _attached(self, text: str) -> str | None:
        """With the files that it mentions; None where it went back to the person."""
        from agent.errors import UserError
        from tui.util.attachments import attach

        try:
            return await asyncio.to_thread(attach, text, self._app.session.shared.root)
        except UserError as error:
            self._back(text, str(error))
            return None

    def _back(self, text: str, why: str) -> None:
        """It is not sent as it is."""
        self._app.prompt.replace_with(text)
        self._app.notify(why, severity="warning", markup=False)

    async def steer(self, text: str) -> None:
        """To the turn that runs: it reads it before it goes on. Nothing written: what waits longest."""
        text = text or self._app.queued.first() or ""
        if not text:
            return
        if self.turn is None or parse(text):
            await self.take(text)
        elif (whole := await self._attached(text)) is not None:
            self.turn.steer(whole)
            self._app.queued.show()

    def recall(self) -> str | None:
        """Take back what was sent last and still waits."""
        text = self._app.queued.latest()
        if text is None and self.turn is not None and self.turn.steering:
            text = self.turn.steering.pop()
            self._app.queued.show()
        return text

    async def next(self) -> None:
        """What waits longest, where nothing runs; commands as many as there are."""
        while self.free and (text := self._app.queued.first()) is not None:
            await self._begin(text)

    async def _begin(self, text: str) -> None:
        from agent.errors import UserError

        app = self._app
        asked = parse(text)
        command = self.commands.find(asked[0]) if asked else None
        if asked is None or command is None:
            await self.ask(text)
            return
        try:
            await command.run(app, asked[1])
        except UserError as error:
            app.looking_at.say(str(error), error=True)

    async def ask(self, text: str) -> None:
        """The model, now."""
        app = self._app
        start = app.session.position
        await self.follow(text, app.session.turn(text, app.asking.approve, app.asking.ask), start)

    async def follow(self, prompt: str, turn: Turn, start: int | None = None) -> None:
        """Show the turn that was begun, and let it be the one that runs. ``start``: the entry that it
        begins with; None: nothing is said in it."""
        from tui.state.turn_view import Said

        app = self._app
        self.turn = self.latest = turn
        app.queued.steering = turn.steering
        self.said = app.placed(Said(prompt, clock=app.clock, start=start))
        await app.chat.begin(self.said)
        app.pace()

        async def answer() -> None:
            await app.follow(turn, said, lambda: app.chat.follow(said))
            await self._finish(turn, said)

        said = self.said
        app.run_worker(answer())

    async def _finish(self, turn: Turn, said: Said) -> None:
        app = self._app
        await app.session.finish(turn)
        said.context_used = app.session.context_used() or said.context_used
        self.turn = None
        # It ended before it read them.
        app.queued.prompts[:0], app.queued.steering = turn.steering, ()
        if app.session.unkept:
            app.chat.say(app.session.unkept, error=True)
            app.session.unkept = None
        app.pace()
        call(app, said.ending or said.answer or "It has answered.")
        app.show_status()
        await self.next()

    def stop(self) -> None:
        """Whoever stops has something else in mind than what they queued before; what they send
        after that, while the turn still ends, is meant."""
        if self.editing is not None:
            self.edit(None)
            self._app.prompt.clear()
            return
        if self.turn is None:
            return
        self.turn.stop()
        prompt, waiting = self._app.prompt, [*self.turn.steering, *self._app.queued.all()]
        self.turn.steering.clear()
        if waiting:
            prompt.replace_with("\n\n".join(filter(None, [*waiting, prompt.text])))
