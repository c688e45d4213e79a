"""Plays a stored turn once more: its events at the pace at which they came, or faster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress

from agent import events as ev
from agent.conversation.conversation import Conversation, Entry
from agent.conversation.messages import Message, User
from agent.store.event_codec import TimedEvent
from agent.store.records import StoredTurn
from agent.turn.endings import StopReason
from agent.turn.log import EventLog
from agent.turn.response_builder import response_events, terminal_event

MAX_PAUSE_SECONDS = 3.0
"""The longest wait between two events, so that a model's load is not replayed in full."""
ITEM_SECONDS = 0.5
"""Seconds between the events of a turn whose events were not stored."""


class TurnReplay:
    """A turn being played: ``start()`` it, then read ``log``. It is a `RunningTurn`."""

    source = "replay"

    def __init__(
        self,
        turn: StoredTurn,
        conversation: Conversation,
        events: Sequence[TimedEvent],
        speed: float,
    ) -> None:
        """``conversation``: as it is now. ``events``: none: items come singly. ``speed``: a factor."""
        self.log = EventLog()
        self.response, self.conversation = turn.response, conversation
        self.prompt: Sequence[Message] = [User(turn.prompt)]
        self.first_entry, self.items = turn.start or 0, turn.response.output
        events = list(events) or [
            (at * ITEM_SECONDS, event) for at, event in enumerate(response_events(turn.response))
        ]
        if not isinstance(events[-1][1], ev.Terminal):  # its process was killed
            events.append((events[-1][0], terminal_event(turn.response)))
        self._events = list(with_delays(events, speed))
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> TurnReplay:
        """Begin to play; needs a running event loop."""
        self._task = asyncio.create_task(self._play())
        return self

    async def done(self) -> ev.Response:
        assert self._task is not None, "start() first"
        await asyncio.shield(self._task)
        return self.response

    def stop(self, reason: StopReason = "cancelled") -> None:
        """Append the rest at once."""
        self._stop.set()

    # A replay cannot be changed.

    def answer_now(self) -> bool:
        return False

    def steer(self, text: str) -> None:
        pass

    def queued_steering(self) -> list[str]:
        return []

    def take_back_steering(self) -> str | None:
        return None

    def pending_entries(self) -> list[Entry]:
        return self.conversation.entries

    async def _play(self) -> None:
        for wait, event in self._events:
            if wait and not self._stop.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), wait)
            self.log.append(event)
        self.log.close()


def with_delays(events: Sequence[TimedEvent], speed: float) -> Iterator[TimedEvent]:
    """Each event with the seconds to wait before it; official ones are numbered without gaps."""
    before, number = 0.0, 0
    for passed, event in events:
        if isinstance(event, ev.OfficialEvent):
            event.sequence_number, number = number, number + 1
        yield min(passed - before, MAX_PAUSE_SECONDS) / speed, event
        before = passed
