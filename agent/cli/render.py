"""Shows the events of a turn on a terminal or in a pipe."""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from agent import events as ev
from agent.turn.endings import TIMED_OUT
from agent.util.markdown_blocks import MarkdownBlocks
from agent.util.sanitize import sanitize, sanitizer_for

_EXIT_CODE = re.compile(r"\[exit code \d+\]")
"""The last line of a command's result, which says more than the first ones."""
MAX_RESULT_LINES = 12
"""Lines of a tool's result that a terminal shows; the model reads more."""

INTERRUPTED = "Interrupted; the partial answer is kept."
CUT_OFF = "The answer was cut off."
"""Where no notice before it has said why."""


class Renderer:
    """Shows the events of a turn; may raise BrokenPipeError."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._sanitize = out, sanitizer_for(out)
        self._changes: dict[str, str] = {}
        """Lines about the files that commands have changed, by item."""
        self._warning = ""  # the latest; it says why an answer is incomplete

    def show(self, event: ev.Event) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        self._out.flush()

    def _sentences(self, event: ev.Event, *, quiet: bool = False) -> Iterator[tuple[str, str]]:
        """The event's sentences about the turn, with styles. ``quiet``: notices are not shown."""
        match event:
            case ev.AgentFileChanges(item_id=item_id):
                self._changes[item_id] = event.summary
            case ev.AgentNotice(level=level, message=message):
                self._warning = message if level == "warning" else self._warning
                yield message, "dim" if level == "info" else "yellow"
            case ev.AgentStart(mcp_servers=servers):
                yield from ((line, "yellow") for line in absent_servers(servers))
            case ev.ResponseFailed(response=response) if response.error:
                yield response.error.message, "red"
            case ev.ResponseIncomplete(response=response):
                if response.status == "cancelled" and self._warning != TIMED_OUT:
                    yield INTERRUPTED, "yellow"
                elif quiet or not self._warning:
                    yield self._warning or CUT_OFF, "yellow"


class JsonLinesRenderer(Renderer):
    """Writes every event as one line of JSON, but those of tokens: --dump-tokens asked for them."""

    def show(self, event: ev.Event) -> None:
        if not isinstance(event, ev.TokenEvent):
            self._out.write(self._sanitize(event.model_dump_json()) + "\n")


class PlainRenderer(Renderer):
    """Writes the final answer to ``out``, and one line per call or notice to ``activity``."""

    def __init__(self, out: TextIO, activity: TextIO | None) -> None:
        super().__init__(out)
        self._activity = activity
        self._final_items: set[str] = set()
        self._refused: set[str] = set()
        """Items of refused calls: the answer may rest on what was not done, so they always show."""

    def show(self, event: ev.Event) -> None:
        match event:
            case ev.OutputItemAdded(item=ev.MessageItem(phase="final_answer") as item):
                self._final_items.add(item.id)
            case ev.OutputTextDelta(item_id=item_id, delta=delta) if item_id in self._final_items:
                self._out.write(self._sanitize(delta))
            case ev.OutputTextDone(item_id=item_id) if item_id in self._final_items:
                self._out.write("\n")
            case ev.OutputItemDone(item=ev.McpCallItem() as call):
                self._print_activity(
                    f"{call.server_label}.{call.name} {call.arguments} → {summarize_call(call)}",
                    always=call.id in self._refused,
                )
                if line := self._changes.pop(call.id, ""):
                    self._print_activity(f"  {line}")
            case ev.AgentApprovalResolved(item_id=item_id, decision="refused"):
                self._refused.add(item_id)
            case _:
                is_notice = isinstance(event, ev.AgentNotice)
                for sentence, _ in self._sentences(event, quiet=self._activity is None):
                    self._print_activity(f"agent: {sentence}", always=not is_notice)

    def _print_activity(self, line: str, always: bool = False) -> None:
        target = self._activity or (sys.stderr if always else None)
        if target is not None:
            print(sanitize(line), file=target, flush=True)


class TerminalRenderer(Renderer):
    """Shows reasoning dimmed, calls and results compact, the answer as Markdown, all as it comes."""

    def __init__(self, out: TextIO, *, plain: bool = False) -> None:
        """``plain``: text alone, also on a terminal: no escape sequences, Markdown as written."""
        # Not imported where the output is a pipe.
        from markdown_it import MarkdownIt
        from rich.console import Console

        super().__init__(out)
        self._plain = plain
        self._console = Console(
            file=out,
            highlight=False,
            force_terminal=False if plain else None,
            color_system=None if plain else "auto",
        )
        self._phase: dict[str, str] = {}
        self._answer = MarkdownBlocks(MarkdownIt("commonmark").enable("table").parse)
        self._column = 0  # column of the cursor; 0: the line is ended
        self._has_status = False

    def show(self, event: ev.Event) -> None:
        match event:
            case ev.AgentLoad(done=done, total=total):
                self._show_status(
                    f"loading the model {100 * done // total} %" if done < total else ""
                )
            case ev.AgentPrefill(done=done, total=total) if total > 2000:
                self._show_status(f"reading {done}/{total} tokens" if done < total else "")
            case ev.ReasoningTextDelta(delta=delta):
                self._write(delta, "dim")
            case ev.McpCallArgumentsDelta(delta=delta):
                self._write(delta, "cyan")
            case ev.AgentToolOutputDelta(delta=delta) if delta.strip():
                self._show_status(delta.strip().splitlines()[-1])
            case ev.AgentToolProgress(message=message, progress=progress, total=total):
                of = f"/{total:g}" if total else ""
                self._show_status(f"{message or 'progress'} {progress:g}{of}")
            case ev.OutputTextDelta(item_id=item_id, delta=delta):
                if self._plain or self._phase.get(item_id) == "commentary":
                    self._write(delta)
                else:
                    for block in self._answer.feed(delta):
                        self._write_markdown(block)
            case ev.OutputItemAdded(item=ev.McpCallItem(server_label=server, name=name)):
                self._write_line("")
                self._write(f"● {server} · {name} ", "bold cyan")
            case ev.OutputItemAdded(item=ev.MessageItem(id=item_id, phase=phase)):
                self._phase[item_id] = phase
                self._write_line("")
            case ev.OutputItemDone(item=item):
                self._close_item(item)
            case ev.AgentApprovalResolved(decision="refused", by=by):
                self._write_line(f"  refused ({by})", "yellow")
            case ev.AgentStats() as stats:
                speed = f" · {stats.tokens_per_second:.0f} tokens/s"
                is_sure = stats.output_tokens >= ev.MIN_SPEED_TOKENS
                self._write_line(f"{stats.output_tokens} tokens{speed if is_sure else ''}", "dim")
            case _:
                for sentence, style in self._sentences(event):
                    self._write_line(sentence, style)

    def _close_item(self, item: ev.Item) -> None:
        match item:
            case ev.McpCallItem() as call:
                self._write_line("")
                style = "red" if call.error else "green"
                for line in summarize_call(call, MAX_RESULT_LINES).splitlines():
                    self._write_line(f"  │ {line}", style)
                if line := self._changes.pop(call.id, ""):
                    self._write_line(f"  {line}", "dim")
            case ev.MessageItem(phase="final_answer") if not self._plain:
                for block in self._answer.finish():
                    self._write_markdown(block)
            case _:
                self._write_line("")

    def _write(self, text: str, style: str | None = None) -> None:
        """Write text that continues the open line."""
        self._clear_status()
        text = sanitize(text)
        self._column = len(text) if "\n" in text else self._column + len(text)
        if text.endswith("\n"):
            self._column = 0
        self._console.print(text, style=style, end="", markup=False, soft_wrap=True)

    def _write_line(self, text: str, style: str | None = None) -> None:
        """Write a line of its own; an empty one only ends the open line."""
        if self._column:
            self._console.print()
            self._column = 0
        if text:
            self._clear_status()
            self._console.print(sanitize(text), style=style, markup=False, soft_wrap=self._plain)

    def _write_markdown(self, block: str) -> None:
        self._write_line("")
        self._clear_status()
        from agent.cli.markdown import AnswerMarkdown

        self._console.print(AnswerMarkdown(sanitize(block)))

    def _show_status(self, text: str) -> None:
        """Show a line that the next output overwrites; an empty text removes it."""
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return
        self._write_line("")
        self._has_status = bool(text)
        self._console.file.write(f"\r\x1b[2K{sanitize(text)[: self._console.width - 1]}")

    def _clear_status(self) -> None:
        if self._has_status:
            self._show_status("")


def summarize_call(call: ev.McpCallItem, max_lines: int = 1) -> str:
    text = f"failed: {call.error.text}" if call.error is not None else call.output or ""
    lines = text.strip().splitlines() or ["(no output)"]
    if len(lines) <= max_lines:
        return "\n".join(lines)
    folded = "\n".join(lines[:max_lines]) + f" … ({len(lines) - max_lines} more lines)"
    return f"{folded} {lines[-1]}" if _EXIT_CODE.fullmatch(lines[-1]) else folded


def absent_servers(servers: Sequence[ev.ServerStatus]) -> list[str]:
    starting = "has not started yet and is not used; name it in the prompt to wait for it"
    return [
        f"the server {s.name} {s.error or starting}"
        for s in servers
        if s.status in ("failed", "starting")
    ]
