"""A kept turn, once more: its events at the pace at which they came, or faster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from agent import events as ev
from agent.runtime.hub import Log
from agent.store.recorder import Timed
from agent.store.records import KeptTurn

PAUSE = 3.0
"""Seconds that nothing happens for at most: nobody wants to wait for a model's load again."""


class Replay:
    """``start()`` it, then read ``log``, as with a turn."""

    def __init__(self, kept: KeptTurn, events: Sequence[Timed], speed: float) -> None:
        """``events``: as they were kept; without them the items come one after the other."""
        self.log = Log()
        events = list(events) or _items(kept.response)
        if not isinstance(events[-1][1], ev.Terminal):  # its process was killed
            events.append((events[-1][0], _end(kept.response)))
        self._events = list(paced(events, speed))
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> Replay:
        self._task = asyncio.create_task(self._play())
        return self

    def stop(self) -> None:
        """The rest comes at once."""
        self._stop.set()

    async def _play(self) -> None:
        for wait, event in self._events:
            if wait and not self._stop.is_set():
                try:
                    await asyncio.wait_for(self._stop.wait(), wait)
                except TimeoutError:
                    pass
            self.log.append(event)
        self.log.close()


def paced(events: Sequence[Timed], speed: float) -> Iterator[Timed]:
    """Each with the seconds to wait before it; official ones are numbered without gaps."""
    before, number = 0.0, 0
    for passed, event in events:
        if isinstance(event, ev.Official):
            event.sequence_number, number = number, number + 1
        yield min(passed - before, PAUSE) / speed, event
        before = passed


def _items(response: ev.Response) -> list[Timed]:
    """Of a turn whose events were not kept."""
    begun = response.model_copy(update={"status": "in_progress", "output": [], "error": None})
    events: list[ev.Event] = [ev.ResponseCreated(response=begun)]
    for at, item in enumerate(response.output):
        events.append(ev.OutputItemAdded(output_index=at, item=item))
        events.append(ev.OutputItemDone(output_index=at, item=item))
    return [(at / 2, event) for at, event in enumerate(events)]


def _end(response: ev.Response) -> ev.Terminal:
    match response.status:
        case "completed":
            return ev.ResponseCompleted(response=response)
        case "failed":
            return ev.ResponseFailed(response=response)
        case _:
            return ev.ResponseIncomplete(response=response)
