"""A conversation that another program has with the model, as far as it is seen from here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tui.widgets.tabs import State
from tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from agent.conversation.conversation import Conversation
    from agent.turn.loop import Turn
    from tui.state.turn_view import Said

LOOKED = 500
"""Characters of a prompt in which its first words are looked for."""


class Watched:
    """Has widgets only once it was looked at; while it is not, nothing is laid out or painted."""

    def __init__(self, turn: Turn) -> None:
        self.conversation = turn.conversation
        self.turn: Turn | None = turn
        """The one that began last; None: it has ended, and its events would take too much memory."""
        self.said: list[Said] = []
        self.transcript = Transcript()
        self.seen = asyncio.Event()
        """Somebody looks at it."""
        self.title = ""
        """What was asked first, on one line."""
        self._live: list[Said] = []
        """Of these not all is shown yet."""
        self._shown = 0
        self._turned = False
        """What is shown is of the page before."""
        self._showing = asyncio.Lock()

    @property
    def state(self) -> State:
        if any(said.running for said in self.said):
            return "running"
        return "done" if self.said[-1].status == "completed" else "failed"

    @property
    def idle(self) -> bool:
        """The latest turn has ended, even if not all of it was read yet."""
        return self.turn is None or self.turn.log.closed

    @property
    def events(self) -> int:
        """Of the turn that is held."""
        return len(self.turn.log.events) if self.turn is not None else 0

    @property
    def ended(self) -> float:
        """When the last of its turns did."""
        return max(said.ended or said.clock() for said in self.said)

    def is_of(self, turn: Turn) -> bool:
        """The turn goes on with it: by its id, or because the client sent all of it again."""
        return turn.conversation.id == self.conversation.id or (
            self.idle and _goes_on(turn.conversation, self.conversation)
        )

    def begin(self, turn: Turn, said: Said, *, anew: bool = False) -> None:
        """``anew``: on a new page."""
        self.turn, self.conversation = turn, turn.conversation
        if anew:
            self.said, self._live, self._shown = [], [], 0
            self._turned = True
        self.said.append(said)
        self._live.append(said)
        words = " ".join(said.prompt[:LOOKED].split())
        self.title = self.title or (words if said.source == "http" else f"{said.source}: {words}")

    async def show(self) -> None:
        """What began while nobody looked at it; only the newest exchange has panes."""
        async with self._showing:
            if not self.seen.is_set():
                return
            # Taken at once: more may begin while this waits.
            said, turned = self.said[:], self._turned
            new = said[self._shown :]
            self._shown, self._turned = len(said), False
            if turned or len(new) > 1:
                await self.transcript.clear()
            if len(new) > 1:
                await self.transcript.recall(said[:-1])
            if new:
                await self.transcript.begin(new[-1])
        self.follow()

    def follow(self) -> None:
        """Show what came."""
        for said in self._live:
            self.transcript.follow(said)
        self._live = [said for said in self._live if said.running]


def _goes_on(new: Conversation, old: Conversation) -> bool:
    """All that was said in the old one is the beginning of the new one; reasoning does not count,
    for clients may leave it out."""
    said = [entry.ids for entry in old.entries if not entry.reasoning]
    begins = [entry.ids for entry in new.entries if not entry.reasoning][: len(said)]
    return begins == said and any(entry.item for entry in old.entries if not entry.reasoning)
