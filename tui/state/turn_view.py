"""One exchange as the app shows it: the events of a turn folded into parts, in stream order.

Views keep how much of a part they have shown and read on from there, so any number of events between
two ticks of the screen costs one update.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent import events as ev
from tui.state.item_view import Part, part_of, settle
from tui.util.format import shown

if TYPE_CHECKING:
    from agent.store.records import KeptTurn

Clock = Callable[[], float]


class Said:
    """What was asked and what came of it."""

    def __init__(
        self,
        prompt: str,
        *,
        source: str = "app",
        clock: Clock = time.monotonic,
        start: int | None = None,
    ) -> None:
        self.prompt, self.source = shown(prompt), source
        self.clock = clock
        self.sent = prompt
        """The prompt as the model has it."""
        self.start = start
        """The conversation's entry that it began with."""
        self.place: tuple[int, int] | None = None
        """Which it is of how many that were said here; None: the only one."""
        self.began, self.ended = clock(), None
        self.parts: list[Part] = []
        self.status: ev.Status = "in_progress"
        self.ending = ""
        """One sentence where it did not end well."""
        self.notices: list[str] = []
        self.model = ""
        self.doing = "waiting"
        self.context_used: int | None = None
        self.context_length: int | None = None
        self.servers: list[ev.ServerStatus] | None = None
        self.speed = 0.0
        self.tokens = 0
        self._by_id: dict[str, Part] = {}
        self._read = self._before = 0
        self._first: tuple[float, int] | None = None
        """When tokens of this generation were first seen, and how many there were by then."""

    ended: float | None

    @property
    def running(self) -> bool:
        return self.ended is None

    @property
    def decoding(self) -> bool:
        """Tokens come right now; a speed makes sense."""
        return self.running and not any(p.state in ("waiting", "running") for p in self.parts)

    @property
    def answer(self) -> str:
        """The final text, to copy."""
        return "\n\n".join(str(p.whole or p.text) for p in self.parts if p.kind == "answer")

    def take(self, event: ev.Event) -> None:
        """Fold one event in; what comes after the end (a load that went on) is of no turn any more."""
        if not self.running:
            return
        match event:
            case (
                ev.ReasoningTextDelta(item_id=key, delta=delta)
                | ev.OutputTextDelta(item_id=key, delta=delta)
                | ev.McpCallArgumentsDelta(item_id=key, delta=delta)
                | ev.FunctionCallArgumentsDelta(item_id=key, delta=delta)
                | ev.CustomToolCallInputDelta(item_id=key, delta=delta)
                | ev.CodeInterpreterCallCodeDelta(item_id=key, delta=delta)
            ):
                self._by_id[key].grow(delta)
            case ev.OutputItemAdded(item=item):
                self._open(item)
            case ev.OutputItemDone(item=item):
                self._close(item)
            case ev.McpCallArgumentsDone(item_id=key, arguments=text):
                self._run(key, text)
            case ev.CodeInterpreterCallCodeDone(item_id=key, code=text):
                self._run(key, text)
            case ev.ResponseCompleted() | ev.ResponseIncomplete() | ev.ResponseFailed():
                self._end(event.response)
            case ev.AgentStats(tokens_per_second=speed, output_tokens=tokens):
                self.speed, self.tokens = speed, tokens
            case _:
                self._around(event)

    def _around(self, event: ev.Event) -> None:
        """What happens beside the items."""
        match event:
            case ev.AgentStart(model=model, context_length=length, mcp_servers=servers):
                self.model, self.context_length = shown(model), length
                self.servers = servers
                self.doing = "waiting for the model"
            case ev.AgentLoad(done=done, total=total):
                self.doing = f"loading the model {100 * done // max(total, 1)} %"
            case ev.AgentPrefill(done=done, total=total):
                self.context_used, self._read = done, done
                self._before, self._first = self.tokens, None
                self.doing = f"reading {done:,}/{total:,} tokens" if done < total else "thinking"
            case ev.AgentReasoning(item_id=key, tokens=tokens):
                self._by_id[key].tokens = tokens
            case ev.AgentToolOutputDelta(item_id=key, delta=delta):
                self._by_id[key].output.add(delta)
            case ev.AgentToolProgress(item_id=key, progress=done, total=total, message=message):
                of = f"/{total:g}" if total else ""
                self._by_id[key].progress = shown(f"{done:g}{of} {message or ''}".strip())
            case ev.AgentApprovalRequested(item_id=key, preview=preview):
                self._by_id[key].state = "waiting"
                self._by_id[key].told = _tells_all(preview)
                self.doing = "waiting for you"
            case ev.AgentApprovalResolved(item_id=key):
                self._run(key)
            case ev.AgentSteered(text=text):
                self._interject(text)
            case ev.AgentNotice(message=message):
                if self.notices and self.notices[-1].endswith("…"):
                    del self.notices[-1]  # what was going on has ended
                self.notices.append(shown(message))
            case _:
                pass

    def _interject(self, text: str) -> None:
        now = self.clock()
        self.parts.append(Part("interjection", "", now, ended=now, whole=shown(text)))

    def _run(self, key: str, arguments: str | None = None) -> None:
        part = self._by_id[key]
        part.whole = part.whole if arguments is None else shown(arguments)
        part.state, part.ran = "running", self.clock()
        self.doing = f"running {part.title.rpartition(' · ')[2]}"

    def count(self, written: int) -> None:
        """``written``: tokens that the model has generated in this turn until now."""
        if not self.running or written <= self.tokens:
            return
        self.tokens, now = written, self.clock()
        if self.context_used is not None:
            self.context_used = self._read + written - self._before
        if self._first is None:
            self._first = (now, written)
        elif (passed := now - self._first[0]) > 0.2:
            self.speed = (written - self._first[1]) / passed

    def _open(self, item: ev.Item) -> None:
        part = part_of(item, self.clock())
        self.parts.append(part)
        self._by_id[item.id] = part
        match part.kind:
            case "reasoning":
                self.doing = "thinking"
            case "call":
                self.doing = f"calling {part.title.rpartition(' · ')[2]}"
            case _:
                self.doing = "answering"

    def _close(self, item: ev.Item) -> None:
        part = self._by_id[item.id]
        part.ended = self.clock()
        settle(part, item)
        self.doing = "thinking"

    def _end(self, response: ev.Response) -> None:
        self.ended = self.clock()
        self.status = response.status
        self.doing = ""
        self.tokens = response.usage.output_tokens if response.usage else self.tokens
        match response.status:
            case "failed":
                error = response.error
                self.ending = shown(error.message) if error else "The turn failed."
            case "cancelled":
                self.ending = "Stopped; what was said until then is kept."
            case "incomplete":
                self.ending = "Cut off: the limit of output tokens, or the context, is used up."

    @classmethod
    def from_turn(cls, turn: KeptTurn, *, clock: Clock = time.monotonic) -> Said:
        """An exchange of the store, as it ended; when its parts came is not known any more."""
        said = cls(turn.prompt, clock=clock, start=turn.start)
        said.model = shown(turn.response.model)
        for one in turn.said():
            if isinstance(one, str):
                said._interject(one)
            else:
                said._open(one)
                said._close(one)
        said._end(turn.response)
        return said


def _tells_all(preview: str | None) -> bool:
    """Whether a question shows all of the arguments: as they are, or as a diff that is not cut."""
    if preview is None:
        return True
    return preview.startswith("--- ") and not preview.endswith(" more lines ...]")
