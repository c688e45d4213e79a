"""`--trace FILE`: every token, segment and event with its time, for Perfetto or chrome://tracing.

The file is a JSON array in the Trace Event Format, written as things happen; one that was cut off
opens too. Times are when this process saw something, in microseconds since the trace began.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from agent import events as ev
from agent.engine.protocol import Finished, Generation, Prefill, Request, Tokens, Waiting
from agent.errors import UserError
from agent.formats.protocol import Format

if TYPE_CHECKING:
    from agent.turn.loop import Turn

TOKENS, EVENTS = 1, 2
"""The two rows of instants; what lasts has a row of its own."""
SNAPSHOTS = (
    ev.ResponseCreated,
    ev.ResponseInProgress,
    ev.ResponseCompleted,
    ev.ResponseIncomplete,
    ev.ResponseFailed,
)
"""Events that repeat the whole response."""


class Trace:
    """One process's; for its owner's eyes only, since it holds what was said."""

    def __init__(self, path: Path) -> None:
        """Raises UserError."""
        self._file: IO[str] | None = None
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file = os.fdopen(number, "w", encoding="utf-8")
            if path.is_file():  # and no device
                os.fchmod(number, 0o600)  # where it was there before
        except OSError as error:
            raise UserError(f"--trace: cannot write {path}: {error.strerror}.") from error
        self._began = time.perf_counter()
        self._generations = 0
        self._following: set[asyncio.Task[None]] = set()
        self._between = "["
        self._write("M", "process_name", 0, {"name": "agent"})
        for row, name in ((TOKENS, "tokens"), (EVENTS, "events")):
            self._write("M", "thread_name", row, {"name": name})

    def generation(self, generation: Generation, request: Request, form: Format) -> Generation:
        """The same one, watched."""
        self._generations += 1
        return Watched(self, generation, request, form, self._generations)

    def follow(self, turn: Turn) -> None:
        """Of a turn: its events, and its items from the first to the last of theirs."""
        task = asyncio.create_task(self._follow(turn))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, turn: Turn) -> None:
        span = f"turn {turn.response.id}"
        self.begin("turn", span, turn.response.id, {"source": turn.source})
        async for batch in turn.log.follow():
            for event in batch:
                self._event(event)
        self.end("turn", span, turn.response.id, {"status": turn.response.status})
        self._put("", through=True)

    def _event(self, event: ev.Event) -> None:
        if isinstance(event, SNAPSHOTS):
            self.instant(EVENTS, event.type, {"status": event.response.status})
            return
        match event:
            case ev.OutputItemAdded(item=item):
                self.begin("segment", _named(item), item.id)
            case ev.OutputItemDone(item=item):
                self.end("segment", _named(item), item.id, item.model_dump(mode="json"))
        self.instant(EVENTS, event.type, event.model_dump(mode="json", exclude={"type"}))

    # --- the format ---

    def instant(self, row: int, name: str, about: dict[str, Any]) -> None:
        self._write("i", name, row, about, s="t")

    def begin(self, kind: str, name: str, id: str, about: dict[str, Any] | None = None) -> None:
        self._write("b", name, EVENTS, about or {}, cat=kind, id=id)

    def end(self, kind: str, name: str, id: str, about: dict[str, Any]) -> None:
        self._write("e", name, EVENTS, about, cat=kind, id=id)

    def _write(self, phase: str, name: str, row: int, about: dict[str, Any], **more: Any) -> None:
        at = round((time.perf_counter() - self._began) * 1e6, 1)
        entry = {"ph": phase, "name": name, "pid": 1, "tid": row, "ts": at, **more, "args": about}
        self._put(self._between + json.dumps(entry))
        self._between = ",\n"

    def _put(self, text: str, *, through: bool = False) -> None:
        """``through``: it is in the file then, with all before it."""
        if self._file is None:
            return
        try:
            self._file.write(text)
            if through:
                self._file.flush()
        except OSError:  # a full disk ends the trace, not the turn
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        with suppress(OSError):
            if file is not None:
                file.close()

    async def close(self) -> None:
        """All of it is in the file."""
        if self._following:
            await asyncio.wait(self._following, timeout=1)
        self._put("]\n")
        self._close()


class Watched:
    """A Generation that tells a trace of what it yields."""

    def __init__(
        self, trace: Trace, generation: Generation, request: Request, form: Format, number: int
    ) -> None:
        self._trace, self._generation, self._request = trace, generation, request
        self._form, self._id = form, f"generation {number}"

    def cancel(self) -> None:
        self._trace.instant(EVENTS, "cancel", {"generation": self._id})
        self._generation.cancel()

    async def __aiter__(self) -> AsyncIterator[Prefill | Waiting | Tokens | Finished]:
        trace, phase = self._trace, "prefill"
        about: dict[str, Any] = {"prompt": len(self._request.prompt), "idle": self._request.idle}
        trace.begin("engine", phase, self._id, about)
        try:
            async for item in self._generation:
                match item:
                    case Prefill(done, total, cached):
                        about = {"done": done, "total": total, "cached": cached}
                        trace.instant(EVENTS, "prefill", about)
                    case Waiting(message):
                        trace.instant(EVENTS, "waiting", {"message": message})
                    case Tokens(ids):
                        if phase == "prefill":
                            trace.end("engine", phase, self._id, about)
                            phase, about = "decode", {}
                            trace.begin("engine", phase, self._id)
                        for token in ids:
                            text = self._form.spelling(token).decode("utf-8", "replace")
                            trace.instant(TOKENS, text, {"id": token, "generation": self._id})
                    case Finished():
                        about = {"reason": item.reason, "tokens": item.output_tokens}
                yield item
        finally:
            trace.end("engine", phase, self._id, about)


def _named(item: ev.Item) -> str:
    """Its kind, and what is called."""
    name = getattr(item, "name", None)
    return f"{item.type} {name}" if name else item.type
