"""How a turn looks on a terminal, and in a pipe."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import TextIO

from agent import events as ev
from agent.util.sanitize import fit, harmless

RESULT_LINES = 12
"""Of a tool's result so many lines are shown; the model reads more."""


class Pipe:
    """The final answer on stdout, what happens meanwhile on stderr."""

    def __init__(self, out: TextIO, activity: TextIO | None) -> None:
        self._out, self._activity = out, activity
        self._shown = fit(out)
        self._final: set[str] = set()

    def show(self, event: ev.Event) -> None:
        match event:
            case ev.OutputItemAdded(item=ev.MessageItem(phase="final_answer") as item):
                self._final.add(item.id)
            case ev.OutputTextDelta(item_id=item_id, delta=delta) if item_id in self._final:
                self._out.write(self._shown(delta))
            case ev.OutputTextDone(item_id=item_id) if item_id in self._final:
                self._out.write("\n")
            case ev.ResponseFailed(response=response) if response.error:
                self._say(f"agent: {response.error.message}", always=True)
            case ev.ResponseIncomplete(response=response):
                self._say(f"agent: {ending(response)}", always=True)
            case ev.OutputItemDone(item=ev.McpCallItem() as call):
                self._say(f"{call.server_label}.{call.name} {call.arguments} → {summary(call)}")
            case ev.AgentNotice(message=message):
                self._say(f"agent: {message}")
            case ev.AgentStart(mcp_servers=servers):
                for line in failing(servers):
                    self._say(f"agent: {line}", always=True)
            case _:
                pass

    def _say(self, line: str, always: bool = False) -> None:
        import sys

        target = self._activity or (sys.stderr if always else None)
        if target is not None:
            print(harmless(line), file=target, flush=True)

    def flush(self) -> None:
        self._out.flush()


class Terminal:
    """Reasoning dimmed, calls and results compact, the answer as Markdown, all as it comes."""

    def __init__(self, out: TextIO) -> None:
        # What shows Markdown is not imported for a pipe.
        from rich.console import Console

        self._console = Console(file=out, highlight=False)
        self._phase: dict[str, str] = {}
        self._answer = Blocks()
        self._column = 0
        self._shown = False

    def show(self, event: ev.Event) -> None:
        match event:
            case ev.AgentLoad(done=done, total=total):
                self._status(f"loading the model {100 * done // total} %" if done < total else "")
            case ev.AgentPrefill(done=done, total=total) if total > 2000:
                self._status(f"reading {done}/{total} tokens" if done < total else "")
            case ev.ReasoningTextDelta(delta=delta):
                self._write(delta, "dim")
            case ev.McpCallArgumentsDelta(delta=delta):
                self._write(delta, "cyan")
            case ev.AgentToolOutputDelta(delta=delta) if delta.strip():
                self._status(delta.strip().splitlines()[-1])
            case ev.AgentToolProgress(message=message, progress=progress, total=total):
                of = f"/{total:g}" if total else ""
                self._status(f"{message or 'progress'} {progress:g}{of}")
            case ev.OutputTextDelta(item_id=item_id, delta=delta):
                if self._phase.get(item_id) == "commentary":
                    self._write(delta)
                else:
                    for block in self._answer.feed(delta):
                        self._markdown(block)
            case ev.OutputItemAdded(item=item):
                self._open(item)
            case ev.OutputItemDone(item=item):
                self._close(item)
            case _:
                self._other(event)

    def _other(self, event: ev.Event) -> None:
        match event:
            case ev.AgentApprovalResolved(decision="refused", by=by):
                self._line(f"  refused ({by})", "yellow")
            case ev.AgentNotice(level=level, message=message):
                self._line(message, "dim" if level == "info" else "yellow")
            case ev.AgentStart(mcp_servers=servers):
                for line in failing(servers):
                    self._line(line, "yellow")
            case ev.AgentStats() as stats:
                speed = f"{stats.tokens_per_second:.0f} tokens/s"
                self._line(f"{stats.output_tokens} tokens · {speed}", "dim")
            case ev.ResponseFailed(response=response) if response.error:
                self._line(response.error.message, "red")
            case ev.ResponseIncomplete(response=response):
                self._line(ending(response), "yellow")
            case _:
                pass

    def _open(self, item: ev.Item) -> None:
        match item:
            case ev.McpCallItem(server_label=server, name=name):
                self._line("")
                self._write(f"● {server} · {name} ", "bold cyan")
            case ev.MessageItem(id=item_id, phase=phase):
                self._phase[item_id] = phase
                self._line("")
            case _:
                pass

    def _close(self, item: ev.Item) -> None:
        match item:
            case ev.McpCallItem() as call:
                self._line("")
                style = "red" if call.error else "green"
                for line in summary(call, RESULT_LINES).splitlines():
                    self._line(f"  │ {line}", style)
            case ev.MessageItem(phase="final_answer"):
                for block in self._answer.rest():
                    self._markdown(block)
            case ev.ReasoningItem():
                self._line("")
            case _:
                self._line("")

    # --- writing ---

    def _write(self, text: str, style: str | None = None) -> None:
        """Text that goes on in the same line."""
        self._clear_status()
        text = harmless(text)
        self._column = len(text) if "\n" in text else self._column + len(text)
        if text.endswith("\n"):
            self._column = 0
        self._console.print(text, style=style, end="", markup=False, soft_wrap=True)

    def _line(self, text: str, style: str | None = None) -> None:
        """A line of its own; an empty one only ends the line that is open."""
        if self._column:
            self._console.print()
            self._column = 0
        if text:
            self._clear_status()
            self._console.print(harmless(text), style=style, markup=False)

    def _markdown(self, block: str) -> None:
        self._line("")
        self._clear_status()
        from rich.markdown import Markdown

        self._console.print(Markdown(harmless(block)))

    def _status(self, text: str) -> None:
        """A line that the next one overwrites."""
        if self._console.is_dumb_terminal:
            return
        self._line("")
        self._shown = bool(text)
        self._console.file.write(f"\r\x1b[2K{harmless(text)[: self._console.width - 1]}")

    def _clear_status(self) -> None:
        if self._shown:
            self._status("")

    def flush(self) -> None:
        self._console.file.flush()


class Blocks:
    """Markdown that arrives in pieces: a block is given out once nothing can change it any more."""

    def __init__(self) -> None:
        self._text = ""
        from markdown_it import MarkdownIt

        self._markdown = MarkdownIt("commonmark").enable("table")

    def feed(self, delta: str) -> list[str]:
        self._text += delta
        if "\n\n" not in self._text:
            return []
        # The last top-level block may still grow; those before it are settled.
        tokens = [t for t in self._markdown.parse(self._text) if t.level == 0 and t.map]
        starts = sorted({t.map[0] for t in tokens if t.map})
        if len(starts) < 2:
            return []
        lines = self._text.splitlines(keepends=True)
        self._text = "".join(lines[starts[-1] :])
        return ["".join(lines[a:b]) for a, b in itertools.pairwise(starts)]

    def rest(self) -> list[str]:
        text, self._text = self._text, ""
        return [text] if text.strip() else []


def summary(call: ev.McpCallItem, lines: int = 1) -> str:
    """A call's outcome in few lines."""
    if call.error is not None:
        match call.error:
            case ev.McpToolExecutionError(content=content):
                text = "\n".join(block.get("text", json.dumps(block)) for block in content)
            case error:
                text = error.message
        text = f"failed: {text}"
    else:
        text = call.output or ""
    shown = text.strip().splitlines() or ["(no output)"]
    if len(shown) <= lines:
        return "\n".join(shown)
    return "\n".join(shown[:lines]) + f" … ({len(shown) - lines} more lines)"


def failing(servers: Sequence[ev.ServerStatus]) -> list[str]:
    """A sentence for each server that cannot be used."""
    return [f"the server {s.name} {s.error}" for s in servers if s.status == "failed"]


def ending(response: ev.Response) -> str:
    """Why an incomplete response ended."""
    if response.status == "cancelled":
        return "Stopped before the answer was whole."
    return "The answer was cut off: the limit of output tokens or the context is used up."
