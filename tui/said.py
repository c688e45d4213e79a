"""One exchange as the app shows it: the events of a turn folded into parts, in stream order.

Views keep how much of a part they have shown and read on from there, so any number of events between
two ticks of the screen costs one update.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from agent import events as ev
from tui.words import seconds, shown

if TYPE_CHECKING:
    from agent.store import KeptTurn

Clock = Callable[[], float]
Kind = Literal["reasoning", "call", "commentary", "answer", "interjection"]


class Growing:
    """Text that only grows; read from any place on."""

    def __init__(self) -> None:
        self._chunks: list[str] = []

    def add(self, text: str) -> None:
        if text:
            self._chunks.append(shown(text))

    def __len__(self) -> int:
        return len(self._chunks)

    def after(self, seen: int) -> str:
        return "".join(self._chunks[seen:])

    def __str__(self) -> str:
        return self.after(0)


@dataclass(eq=False)
class Part:
    """One item of the response."""

    kind: Kind
    id: str
    began: float
    ended: float | None = None
    text: Growing = field(default_factory=Growing)
    """The reasoning, the message, or a call's arguments, as they were decoded."""
    whole: str | None = None
    """The text once it is settled; a call's arguments may have been mended by then."""
    cut: bool = False
    """It ended before it was whole."""

    # of calls
    title: str = ""
    state: Literal["writing", "waiting", "running", "done", "failed"] = "writing"
    output: Growing = field(default_factory=Growing)
    """What a running tool has printed so far."""
    result: str | None = None
    progress: str = ""

    @property
    def settled(self) -> bool:
        return self.ended is not None


class Said:
    """What was asked and what came of it."""

    def __init__(self, prompt: str, *, source: str = "app", clock: Clock = time.monotonic) -> None:
        self.prompt, self.source = shown(prompt), source
        self.clock = clock
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
        self._counted = 0
        self._first: float | None = None

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
            ):
                self._grow(key, delta)
            case ev.OutputItemAdded(item=item):
                self._open(item)
            case ev.OutputItemDone(item=item):
                self._close(item)
            case ev.McpCallArgumentsDone(item_id=key, arguments=text):
                self._by_id[key].whole = shown(text)
                self._by_id[key].state = "running"
                self._doing_runs(key)
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
                self.context_used, self._first = done, None
                self._counted = 0
                self.doing = f"reading {done:,}/{total:,} tokens" if done < total else "thinking"
            case ev.AgentToolOutputDelta(item_id=key, delta=delta):
                self._by_id[key].output.add(delta)
            case ev.AgentToolProgress(item_id=key, progress=done, total=total, message=message):
                of = f"/{total:g}" if total else ""
                self._by_id[key].progress = shown(f"{done:g}{of} {message or ''}".strip())
            case ev.AgentApprovalRequested(item_id=key):
                self._by_id[key].state = "waiting"
                self.doing = "waiting for you"
            case ev.AgentApprovalResolved(item_id=key):
                self._by_id[key].state = "running"
                self._doing_runs(key)
            case ev.AgentSteered(text=text):
                self._interject(text)
            case ev.AgentNotice(message=message):
                self.notices.append(shown(message))
            case _:
                pass

    def _interject(self, text: str) -> None:
        now = self.clock()
        self.parts.append(Part("interjection", "", now, ended=now, whole=shown(text)))

    def _doing_runs(self, key: str) -> None:
        self.doing = f"running {self._by_id[key].title.rpartition(' · ')[2]}"

    def _grow(self, key: str, delta: str) -> None:
        self._by_id[key].text.add(delta)
        now = self.clock()
        if self._first is None:
            self._first = now
        # About one delta a token; the exact numbers come with the end of the turn.
        self._counted += 1
        self.tokens += 1
        if self.context_used is not None:
            self.context_used += 1
        if (passed := now - self._first) > 0.2:
            self.speed = (self._counted - 1) / passed

    def _open(self, item: ev.Item) -> None:
        part = _part(item, self.clock())
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
        _settle(part, item)
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
        said = cls(turn.prompt, clock=clock)
        said.model = shown(turn.response.model)
        for one in turn.said():
            if isinstance(one, str):
                said._interject(one)
            else:
                said._open(one)
                said._close(one)
        said._end(turn.response)
        return said


def _part(item: ev.Item, now: float) -> Part:
    match item:
        case ev.ReasoningItem():
            return Part("reasoning", item.id, now)
        case ev.MessageItem(phase=phase):
            return Part("commentary" if phase == "commentary" else "answer", item.id, now)
        case ev.McpCallItem(server_label=server, name=name):
            return Part("call", item.id, now, title=shown(f"{server} · {name}"))
        case ev.FunctionCallItem(name=name):
            return Part("call", item.id, now, title=shown(name))
        case ev.McpListToolsItem(server_label=server):
            return Part("call", item.id, now, title=shown(f"{server} · tools"))
        case ev.McpApprovalRequestItem(server_label=server, name=name):
            return Part("call", item.id, now, title=shown(f"{server} · {name}"))
        case ev.CustomToolCallItem(name=name):
            return Part("call", item.id, now, title=shown(name))
        case ev.CodeInterpreterCallItem():
            return Part("call", item.id, now, title="code_interpreter · python")
        case ev.WebSearchCallItem():
            return Part("call", item.id, now, title="browser")


def _settle(part: Part, item: ev.Item) -> None:
    part.cut = getattr(item, "status", None) == "incomplete"
    match item:
        case ev.ReasoningItem(content=content):
            part.whole = shown("".join(piece.text for piece in content))
        case ev.MessageItem(content=texts):
            part.whole = shown("".join(piece.text for piece in texts))
        case ev.McpCallItem(arguments=arguments, output=output, error=error):
            part.whole = shown(arguments)
            part.state = "failed" if error else "done"
            part.result = shown(failure(error) if error else output or "")
        case ev.FunctionCallItem(arguments=arguments):
            part.whole = shown(arguments)
            part.state, part.result = "done", "handed to the client"
        case ev.McpListToolsItem(tools=tools):
            part.whole = "{}"
            part.state, part.result = "done", shown(", ".join(tool.name for tool in tools))
        case ev.McpApprovalRequestItem(arguments=arguments):
            part.whole = shown(arguments)
            part.state, part.result = "done", "waits for the client's approval"
        case ev.CustomToolCallItem(input=text):
            part.whole = shown(text)
            part.state, part.result = "done", "handed to the client"
        case ev.CodeInterpreterCallItem(code=code, outputs=outputs, status=status):
            part.whole = shown(code)
            part.state = "done" if status == "completed" else "failed"
            part.result = shown("".join(str(one.get("logs", "")) for one in outputs or ()))
        case ev.WebSearchCallItem(action=action, status=status):
            part.whole = shown(json.dumps(action, ensure_ascii=False))
            part.state = "done" if status == "completed" else "failed"


def failure(error: ev.McpError) -> str:
    """What a person reads of a call that failed."""
    match error:
        case ev.McpToolExecutionError(content=content):
            return "\n".join(str(block.get("text") or json.dumps(block)) for block in content)
        case _:
            return error.message


def duration(part: Part) -> str:
    """How long it took; empty where that is not known (an exchange of the store)."""
    if part.ended is None or part.ended - part.began < 0.05:
        return ""
    return seconds(part.ended - part.began)


def thought(parts: Sequence[Part]) -> float:
    """Seconds of reasoning in all."""
    return sum((p.ended or p.began) - p.began for p in parts if p.kind == "reasoning")
