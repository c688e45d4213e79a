"""Turns the events of a turn, running or stored, into updates of a session."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp.schema as S
from acp import helpers

from agent import events as ev
from tools.builtin.files.changes import FileChange

Content = helpers.ToolCallContentVariant
Update = helpers.SessionUpdate | S.UsageUpdate
LOAD_ID = "load"
"""The id of the call that shows how far a model is loaded."""
LOAD_STEP = 50
"""Per mille of a load between two updates."""
MAX_OUTPUT_CHARACTERS = 8000
"""Most characters that are shown of a running tool's output: its end."""
_KINDS: dict[tuple[str, str], S.ToolKind] = {
    ("files", "read"): "read",
    ("files", "list"): "read",
    ("files", "search"): "search",
    ("files", "glob"): "search",
    ("files", "write"): "edit",
    ("files", "apply_patch"): "edit",
    ("files", "undo"): "edit",
    ("shell", "exec"): "execute",
    ("code_interpreter", "python"): "execute",
    ("browser", "search"): "search",
    ("browser", "open"): "fetch",
    ("browser", "find"): "search",
}
_SUBJECTS = ("path", "cmd", "command", "code", "query", "pattern", "url", "id")
"""Arguments that a call's title may show, the first that it has."""


@dataclass
class Call:
    """A tool call, as far as its events have come."""

    id: str
    server: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    output: str = ""
    content: list[Content] = field(default_factory=list)
    """The files that it has changed."""

    @property
    def kind(self) -> S.ToolKind:
        return _KINDS.get((self.server, self.name), "other")

    @property
    def title(self) -> str:
        name = f"{self.server}.{self.name}" if self.server else self.name
        subject = next((self.arguments[key] for key in _SUBJECTS if key in self.arguments), None)
        if isinstance(subject, list):
            subject = subject[-1] if subject else None
        line = str(subject).strip().partition("\n")[0][:100] if subject is not None else ""
        return f"{name}: {line}" if line else name


def diffs(changes: Sequence[FileChange]) -> list[Content]:
    """The changes of text files, for the editor to show."""
    return [
        helpers.tool_diff_content(
            str(change.path),
            (change.after or b"").decode("utf-8", "replace"),
            None if change.before is None else change.before.decode("utf-8", "replace"),
        )
        for change in changes
    ]


def text_content(text: str) -> Content:
    return helpers.tool_content(helpers.text_block(text))


class TurnUpdates:
    """Makes the updates of one turn."""

    def __init__(self, root: Path, model: str, *, replayed: bool = False) -> None:
        """``replayed``: it is over: its texts come as a whole, its notices and loads not at all."""
        self._root, self._model, self._replayed = root, model, replayed
        self.calls: dict[str, Call] = {}
        self._load = -1
        """Per mille that the model is loaded; -1: no load was shown."""

    def of(self, event: ev.Event) -> Iterator[Update]:
        match event:
            case ev.ReasoningTextDelta(delta=text) if not self._replayed:
                yield helpers.update_agent_thought_text(text)
            case ev.OutputTextDelta(delta=text) if not self._replayed:
                yield helpers.update_agent_message_text(text)
            case ev.OutputItemAdded(item=ev.ReasoningItem() | ev.MessageItem()):
                pass
            case ev.OutputItemAdded(item=item):
                yield from self._begin(item)
            case ev.McpCallArgumentsDone(item_id=name, arguments=arguments):
                yield from self._run(name, arguments)
            case ev.AgentToolOutputDelta(item_id=name, delta=delta) if call := self.calls.get(name):
                call.output = (call.output + delta)[-MAX_OUTPUT_CHARACTERS:]
                yield self._progress(call, [text_content(call.output)])
            case ev.AgentToolProgress(item_id=name) if call := self.calls.get(name):
                of = f"/{event.total:g}" if event.total else ""
                text = f"{event.message or 'progress'}: {event.progress:g}{of}"
                yield self._progress(call, [text_content(text)])
            case ev.AgentFileChanges(item_id=name) if call := self.calls.get(name):
                call.content.append(text_content(event.summary))
                yield helpers.update_tool_call(
                    name, locations=self._locations([*event.created, *event.modified])
                )
            case ev.OutputItemDone(item=ev.ReasoningItem(content=parts)) if self._replayed:
                yield helpers.update_agent_thought_text("".join(part.text for part in parts))
            case ev.OutputItemDone(item=ev.MessageItem(content=parts)) if self._replayed:
                yield helpers.update_agent_message_text("".join(part.text for part in parts))
            case ev.OutputItemDone(item=item) if item.id in self.calls:
                yield self._finish(self.calls[item.id], item)
            case ev.AgentSteered(text=text):
                yield helpers.update_user_message_text(text)
            case ev.AgentContext(tokens=tokens, context_length=length):
                yield S.UsageUpdate(session_update="usage_update", used=tokens, size=length)
            case ev.AgentLoad(done=done) if not self._replayed:
                yield from self._show_load(done)
            case ev.AgentNotice(message=message) if not self._replayed:
                yield helpers.update_agent_thought_text(f"\n\n{message}\n\n")
            case ev.ResponseFailed() if 0 <= self._load < 1000:
                yield helpers.update_tool_call(LOAD_ID, status="failed")

    def _begin(self, item: ev.Item) -> Iterator[Update]:
        server = str(getattr(item, "server_label", ""))
        call = Call(item.id, server, str(getattr(item, "name", item.type)))
        self.calls[item.id] = call
        yield helpers.start_tool_call(call.id, call.title, kind=call.kind, status="pending")
        if arguments := getattr(item, "arguments", ""):  # of a turn whose events are not stored
            yield from self._run(item.id, arguments)

    def _run(self, name: str, arguments: str) -> Iterator[Update]:
        call = self.calls[name]
        try:
            values = json.loads(arguments)
        except ValueError:
            values = {}
        call.arguments = values if isinstance(values, dict) else {}
        path = call.arguments.get("path")
        where = self._locations([path] if isinstance(path, str) else [])
        yield helpers.update_tool_call(
            name, title=call.title, status="in_progress", raw_input=call.arguments, locations=where
        )

    def _progress(self, call: Call, content: list[Content]) -> Update:
        return helpers.update_tool_call(call.id, status="in_progress", content=content)

    def _finish(self, call: Call, item: ev.Item) -> Update:
        error, output = getattr(item, "error", None), getattr(item, "output", None)
        text = error if isinstance(error, str) else error.text if error else output or ""
        failed = error is not None or getattr(item, "status", "") == "failed"
        return helpers.update_tool_call(
            call.id,
            status="failed" if failed else "completed",
            content=[*call.content, *([text_content(text)] if text else [])],
            raw_output={"error": text} if failed else {"output": text},
        )

    def _locations(self, paths: Sequence[str]) -> list[S.ToolCallLocation] | None:
        return [S.ToolCallLocation(path=str(self._root / path)) for path in paths] or None

    def _show_load(self, done: int) -> Iterator[Update]:
        title = f"Loading {self._model}"
        if self._load < 0:
            yield helpers.start_tool_call(LOAD_ID, title, kind="other", status="in_progress")
        if done == 1000 or done >= self._load + LOAD_STEP:
            self._load = done
            status: S.ToolCallStatus = "completed" if done == 1000 else "in_progress"
            yield helpers.update_tool_call(LOAD_ID, title=f"{title}: {done // 10} %", status=status)
