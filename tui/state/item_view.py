"""The view model of one response item: reasoning, a message, a call, or a steering message."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from agent import events as ev
from agent.turn.response_builder import ItemBuilder
from tui.markdown.citations import link_citations
from tui.markdown.highlight import ArgumentStream
from tui.util.format import StyledRun, display_text, format_seconds

ItemKind = Literal["reasoning", "call", "commentary", "answer", "steering"]
"""Kinds of items; ``commentary`` is a message before a call, ``steering`` one of the user in a turn."""


class TextBuffer:
    """Text in chunks, sanitised for display; ``read_from`` a length gives what is new."""

    def __init__(self, deltas: Sequence[str] = ()) -> None:
        """``deltas``: grows while the text streams."""
        self._deltas = deltas

    @property
    def _chunks(self) -> Sequence[str]:
        return self._deltas

    def __len__(self) -> int:
        return len(self._chunks)

    def read_from(self, length: int) -> str:
        return "".join(map(display_text, self._chunks[length:]))

    @property
    def source(self) -> str:
        return "".join(self._chunks)

    def __str__(self) -> str:
        return self.read_from(0)


class ArgumentText(TextBuffer):
    """The arguments of a call, as ``ArgumentStream`` decodes them; new deltas when they are read."""

    def __init__(self, deltas: Sequence[str]) -> None:
        super().__init__(deltas)
        self._stream, self._decoded, self._deltas_read = ArgumentStream(), list[str](), 0

    @property
    def _chunks(self) -> Sequence[str]:
        new = self._deltas[self._deltas_read :]
        self._deltas_read += len(new)
        self._decoded += filter(None, map(self._stream.feed, new))
        return self._decoded


@dataclass(eq=False)
class ItemView:
    """One item of a response, as far as its events have come; the widgets read it."""

    kind: ItemKind
    id: str
    """The id of the response item; empty for steering messages."""
    began: float
    """When it began, in the clock's seconds, as all times here."""
    ended: float | None = None
    text: TextBuffer = field(default_factory=TextBuffer)
    """The reasoning, the message, or a call's arguments, as they stream."""
    final_text: str | None = None
    """The text once it is complete; a call's arguments may have been repaired by then."""
    source: str | None = None
    """A complete message as the model wrote it, with its tabs."""
    incomplete: bool = False
    tokens: int | None = None
    markdown: str | None = None
    """A message with its citations as links; None if it has none."""

    coloured: Sequence[StyledRun] | None = None
    """The text, coloured by the probabilities of its tokens; None: it is shown as it is."""

    # calls only
    title: str = ""
    state: Literal["writing", "waiting", "running", "done", "failed"] = "writing"
    card_has_arguments: bool = False
    """Whether the approval card shows all of the arguments."""
    output: TextBuffer = field(default_factory=TextBuffer)
    result: str | None = None
    progress: str = ""
    changes: str = ""
    """Which files the command has changed, in one line."""
    tool_started: float | None = None

    @property
    def displayed_markdown(self) -> str:
        return self.markdown or self.final_text or str(self.text)

    @property
    def is_complete(self) -> bool:
        return self.ended is not None

    @property
    def card_open(self) -> bool:
        return self.card_has_arguments and self.state == "waiting"


def open_item(builder: ItemBuilder, now: float) -> ItemView:
    item = builder.item
    match item:
        case ev.ReasoningItem():
            return ItemView("reasoning", item.id, now, text=TextBuffer(builder.deltas))
        case ev.MessageItem(phase=phase):
            kind: ItemKind = "commentary" if phase == "commentary" else "answer"
            return ItemView(kind, item.id, now, text=TextBuffer(builder.deltas))
    text, output = ArgumentText(builder.deltas), TextBuffer(builder.printed)
    title = display_text(_call_parts(item)[0])
    return ItemView("call", item.id, now, text=text, output=output, title=title)


def finish_item(view: ItemView, item: ev.Item) -> None:
    view.incomplete = getattr(item, "status", None) == "incomplete"
    match item:
        case ev.ReasoningItem(content=content):
            view.final_text = display_text("".join(piece.text for piece in content))
        case ev.MessageItem(content=texts):
            view.source = "".join(piece.text for piece in texts)
            view.final_text = display_text(view.source)
            linked = (link_citations(piece.text, piece.annotations) for piece in texts)
            rendered = display_text("".join(linked))
            view.markdown = rendered if rendered != view.final_text else None
        case _:
            _, arguments, result, failed = _call_parts(item)
            view.final_text, view.state = display_text(arguments), "failed" if failed else "done"
            view.result = None if result is None else display_text(result)


def _call_parts(item: ev.Item) -> tuple[str, str, str | None, bool]:
    match item:
        case ev.McpCallItem(error=error):
            title = f"{item.server_label} · {item.name}"
            result = (error.text if error else item.output) or ""
            return title, item.arguments, result, error is not None
        case ev.McpListToolsItem(tools=tools):
            return f"{item.server_label} · tools", "{}", ", ".join(t.name for t in tools), False
        case ev.McpApprovalRequestItem():
            title = f"{item.server_label} · {item.name}"
            return title, item.arguments, "waiting for the client's approval", False
        case ev.FunctionCallItem():
            return item.name, item.arguments, "sent to the client", False
        case ev.CustomToolCallItem():
            return item.name, item.input, "sent to the client", False
        case ev.ShellCallItem(action=values) | ev.ApplyPatchCallItem(operation=values):
            text = json.dumps(values, ensure_ascii=False)
            return str(ev.client_tool(item)), text, "sent to the client", False
        case ev.CompactionItem():
            return "compaction", "{}", None, False
        case ev.CodeInterpreterCallItem(outputs=outputs, status=status):
            logs = "".join(str(output.get("logs", "")) for output in outputs or ())
            return "code_interpreter · python", item.code, logs, status != "completed"
        case ev.WebSearchCallItem(action=action, status=status):
            return "browser", json.dumps(action, ensure_ascii=False), None, status != "completed"
        case ev.ToolSearchCallItem(arguments=values, status=status):
            text = json.dumps(values, ensure_ascii=False)
            return "tool_search", text, None, status == "incomplete"
        case ev.ToolSearchOutputItem(tools=tools):
            names = ", ".join(str(tool.get("name") or tool.get("server_label")) for tool in tools)
            return "tool_search · found", "{}", names, False
        case _:
            raise TypeError(item.type)


def duration(view: ItemView, now: float | None = None) -> str:
    """The duration of an item, for a call that of its tool; empty: unknown. ``now``: if unfinished."""
    began, ended = view.began if view.tool_started is None else view.tool_started, view.ended or now
    return format_seconds(ended - began) if ended is not None and ended - began >= 0.05 else ""


def reasoning_seconds(views: Sequence[ItemView], now: float | None = None) -> float:
    """The duration of all reasoning. ``now``: if some is unfinished."""
    return sum((v.ended or now or v.began) - v.began for v in views if v.kind == "reasoning")
