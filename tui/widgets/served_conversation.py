"""One conversation of another program over HTTP, as its tab displays it."""

import asyncio

from agent.turn.context import RunningTurn
from tui.state.turn_view import TurnView
from tui.widgets.tabs import TabState
from tui.widgets.transcript import Transcript

TITLE_SOURCE_CHARACTERS = 500


class ServedConversation:
    """The turns of one tab and their transcript; nothing is laid out or painted while it is hidden."""

    def __init__(self, turn: RunningTurn) -> None:
        self.conversation = turn.conversation
        self.turn: RunningTurn | None = turn
        """The latest turn; None after it has ended and was dropped to free its events' memory."""
        self.turn_views: list[TurnView] = []
        self.transcript = Transcript()
        self.in_view = asyncio.Event()
        self.title = ""
        """The first prompt, on one line."""
        self._streaming: list[TurnView] = []  # turns whose widgets are not up to date yet
        self._mounted: list[TurnView] = []
        """The turns that have widgets, also where ``add_turn(restart=True)`` has dropped them."""
        self._mount_lock = asyncio.Lock()

    @property
    def state(self) -> TabState:
        if any(view.running for view in self.turn_views):
            return "running"
        return "done" if self.turn_views[-1].status == "completed" else "failed"

    @property
    def idle(self) -> bool:
        """Whether the latest turn has ended, even if not all of its events were read yet."""
        return self.turn is None or self.turn.log.closed

    @property
    def ended_at(self) -> float:
        """When its last turn ended, in the clock's seconds; now, if one is running."""
        return max(view.ended or view.clock() for view in self.turn_views)

    def continues_with(self, turn: RunningTurn) -> bool:
        """Whether the turn continues this conversation, by its id or by sending all of it again."""
        new, old = turn.conversation, self.conversation
        if new.id == old.id or not self.idle:
            return new.id == old.id
        # Without its reasoning, which clients do not send again.
        entries = [entry for entry in old.entries if not entry.reasoning]
        prefix = [entry.ids for entry in new.entries if not entry.reasoning][: len(entries)]
        return prefix == [entry.ids for entry in entries] and any(entry.item for entry in entries)

    def add_turn(self, turn: RunningTurn, view: TurnView, *, restart: bool = False) -> None:
        """Add a turn that begins. ``restart``: drop the turns before it."""
        self.turn, self.conversation = turn, turn.conversation
        if restart:
            self.turn_views, self._streaming = [], []
        self.turn_views.append(view)
        self._streaming.append(view)
        words = " ".join(view.prompt[:TITLE_SOURCE_CHARACTERS].split())
        self.title = self.title or (words if view.source == "http" else f"{view.source}: {words}")

    async def show(self) -> None:
        """Mount the turns that began while the tab was hidden; only the newest one has panes."""
        async with self._mount_lock:
            if not self.in_view.is_set():
                return
            # Copied before the first await: more turns may begin meanwhile.
            before, self._mounted = self._mounted, self.turn_views[:]
            *earlier, newest = self._mounted
            if before not in (earlier, self._mounted):
                await self.transcript.clear()
                if earlier:
                    await self.transcript.add_stored_turns(earlier)
            if before != self._mounted:
                await self.transcript.add_turn(newest)
        self.update()

    def update(self) -> None:
        for view in self._streaming:
            self.transcript.follow(view)
        self._streaming = [view for view in self._streaming if view.running]
