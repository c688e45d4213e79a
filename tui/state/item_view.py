"""One item of a response as the app shows it: reasoning, a call, or something said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent import events as ev
from tui.markdown.citations import cited
from tui.markdown.highlight import Written
from tui.util.format import seconds, shown

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
    tokens: int | None = None
    """Of reasoning that is whole."""
    rendered: str | None = None
    """A message with what it cites as links, where that differs from its text."""

    # of calls
    title: str = ""
    state: Literal["writing", "waiting", "running", "done", "failed"] = "writing"
    told: bool = False
    """All that it is called with stands in the question that the person is asked about it."""
    output: Growing = field(default_factory=Growing)
    """What a running tool has printed so far."""
    result: str | None = None
    progress: str = ""
    ran: float | None = None
    """When its tool began to run."""
    written: Written = field(default_factory=Written)

    def grow(self, delta: str) -> None:
        self.text.add(self.written.feed(delta) if self.kind == "call" else delta)

    @property
    def settled(self) -> bool:
        return self.ended is not None

    @property
    def asked(self) -> bool:
        """A question stands there that shows its arguments."""
        return self.told and self.state == "waiting"


def part_of(item: ev.Item, now: float) -> Part:
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


def settle(part: Part, item: ev.Item) -> None:
    part.cut = getattr(item, "status", None) == "incomplete"
    match item:
        case ev.ReasoningItem(content=content):
            part.whole = shown("".join(piece.text for piece in content))
        case ev.MessageItem(content=texts):
            part.whole = shown("".join(piece.text for piece in texts))
            rendered = shown("".join(cited(piece.text, piece.annotations) for piece in texts))
            part.rendered = rendered if rendered != part.whole else None
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


def duration(part: Part, now: float | None = None) -> str:
    """How long it took, of a call its tool; empty where that is not known (an exchange of the store).

    ``now``: for how long it has been going on, where it still is.
    """
    began, ended = part.began if part.ran is None else part.ran, part.ended or now
    return seconds(ended - began) if ended is not None and ended - began >= 0.05 else ""


def thought(parts: Sequence[Part]) -> float:
    """Seconds of reasoning in all."""
    return sum((p.ended or p.began) - p.began for p in parts if p.kind == "reasoning")
