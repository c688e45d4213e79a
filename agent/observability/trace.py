"""Writes every token, segment and event into a file, for ``--trace FILE``: a JSON array in the Trace
Event Format, for Perfetto and chrome://tracing, in microseconds since the trace began.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from agent import events as ev
from agent.engine.protocol import Finished, Generation, Prefill, Request, Tokens, Waiting
from agent.errors import user_errors
from agent.formats.protocol import Format
from agent.turn.context import RunningTurn

TOKEN_ROW, EVENT_ROW = 1, 2
"""Thread ids of the two rows of instants; each span has a row of its own."""


class Trace:
    """The trace of one process; its file is private to its owner, since it holds conversations."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises UserError where it cannot be written."""
        self._file: IO[str] | None = None
        with user_errors(OSError, failure=f"--trace: cannot write {path}"):
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            self._file = os.fdopen(number, "w", encoding="utf-8")
            if path.is_file():  # a device keeps its mode
                os.fchmod(number, 0o600)  # an existing file has another mode
        self._began = time.perf_counter()
        self._generations = 0
        self._following: set[asyncio.Task[None]] = set()
        self._separator = "["
        self._write("M", "process_name", 0, {"name": "agent"})
        for row, name in ((TOKEN_ROW, "tokens"), (EVENT_ROW, "events")):
            self._write("M", "thread_name", row, {"name": name})

    def wrap_generation(self, generation: Generation, request: Request, form: Format) -> Generation:
        self._generations += 1
        return TracedGeneration(self, generation, request, form, self._generations)

    def follow(self, turn: RunningTurn) -> None:
        """Trace a turn's events, and each item as a span; a subscriber of ``Hub``."""
        task = asyncio.create_task(self._follow(turn))
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _follow(self, turn: RunningTurn) -> None:
        span = f"turn {turn.response.id}"
        self.begin("turn", span, turn.response.id, {"source": turn.source})
        async for batch in turn.log.follow():
            for event in batch:
                self._on_event(event)
        self.end("turn", span, turn.response.id, {"status": turn.response.status})
        self._put("", flush=True)

    def _on_event(self, event: ev.Event) -> None:
        if isinstance(event, ev.ResponseEvent):  # of a whole response only the status is traced
            self.instant(EVENT_ROW, event.type, {"status": event.response.status})
            return
        if isinstance(event, ev.TokenEvent):
            return  # the generation's own rows have each token
        match event:
            case ev.OutputItemAdded(item=item):
                self.begin("segment", _span_name(item), item.id)
            case ev.OutputItemDone(item=item):
                self.end("segment", _span_name(item), item.id, item.model_dump(mode="json"))
        self.instant(EVENT_ROW, event.type, event.model_dump(mode="json", exclude={"type"}))

    def instant(self, row: int, name: str, args: dict[str, Any]) -> None:
        self._write("i", name, row, args, s="t")

    def begin(self, kind: str, name: str, id: str, args: dict[str, Any] | None = None) -> None:
        """Begin a span; `end` with the same kind, name and id ends it."""
        self._write("b", name, EVENT_ROW, args or {}, cat=kind, id=id)

    def end(self, kind: str, name: str, id: str, args: dict[str, Any]) -> None:
        self._write("e", name, EVENT_ROW, args, cat=kind, id=id)

    def _write(self, phase: str, name: str, row: int, args: dict[str, Any], **more: Any) -> None:
        at = round((time.perf_counter() - self._began) * 1e6, 1)
        entry = {"ph": phase, "name": name, "pid": 1, "tid": row, "ts": at, **more, "args": args}
        self._put(self._separator + json.dumps(entry))
        self._separator = ",\n"

    def _put(self, text: str, *, flush: bool = False) -> None:
        """Write text; ``flush``: all that was written is in the file then."""
        if self._file is None:
            return
        try:
            self._file.write(text)
            if flush:
                self._file.flush()
        except OSError:  # a full disk ends the trace, not the turn
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    async def close(self) -> None:
        """Write the rest of the turns that are followed, and close the file."""
        if self._following:
            await asyncio.wait(self._following, timeout=1)
        self._put("]\n")
        self._close()


class TracedGeneration:
    """Passes a generation on and writes its tokens and phases into a trace."""

    def __init__(
        self, trace: Trace, generation: Generation, request: Request, form: Format, number: int
    ) -> None:
        self._trace, self._generation, self._request = trace, generation, request
        self._form, self._id = form, f"generation {number}"

    def cancel(self) -> None:
        self._trace.instant(EVENT_ROW, "cancel", {"generation": self._id})
        self._generation.cancel()

    async def __aiter__(self) -> AsyncIterator[Prefill | Waiting | Tokens | Finished]:
        trace, phase, request = self._trace, "prefill", self._request
        args: dict[str, Any] = {"prompt": len(request.prompt), "idle": request.background}
        trace.begin("engine", phase, self._id, args)
        try:
            async for item in self._generation:
                match item:
                    case Prefill(done, total, cached):
                        args = {"done": done, "total": total, "cached": cached}
                        trace.instant(EVENT_ROW, "prefill", args)
                    case Waiting(message):
                        trace.instant(EVENT_ROW, "waiting", {"message": message})
                    case Tokens(ids):
                        if phase == "prefill":
                            trace.end("engine", phase, self._id, args)
                            phase, args = "decode", {}
                            trace.begin("engine", phase, self._id)
                        for token in ids:
                            text = self._form.token_bytes(token).decode("utf-8", "replace")
                            trace.instant(TOKEN_ROW, text, {"id": token, "generation": self._id})
                    case Finished():
                        args = {"reason": item.reason, "tokens": item.output_tokens}
                        if item.drafted_tokens:
                            args["drafted"] = item.drafted_tokens
                            args["accepted"] = item.accepted_tokens
                yield item
        finally:
            trace.end("engine", phase, self._id, args)


def _span_name(item: ev.Item) -> str:
    name = getattr(item, "name", None)
    return f"{item.type} {name}" if name else item.type
