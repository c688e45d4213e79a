"""The screen of the context: what fills it, and keys that fold, drop, pin and switch off."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static
from textual.widgets.option_list import Option

from agent.conversation.conversation import Conversation
from agent.conversation.prompt_choices import toggle_dropped, toggle_fold, toggle_pinned
from agent.events import AgentContext, ContextPart
from agent.formats.protocol import Format
from agent.turn.context_usage import (
    BAR_MARKS,
    FREE_MARK,
    bar_widths,
    part_name,
    part_note,
    turn_note,
)
from tui.guarded import run_latest
from tui.keymap import bind_fixed
from tui.next_prompt import NextPrompt
from tui.screens.list_screen import ListScreen
from tui.util.format import display_text

POLL_SECONDS = 0.5
NUMBER_COLUMNS = 19
"""Columns of a row behind its name: tokens, and their share of the context."""
NOTE_COLUMNS = 20
"""Columns behind those, for what was done to the part."""
MAX_DETAIL_TOKENS = 2000
MAX_REMEMBERED_LABELS = 8192
"""Rows whose text is not made again: making it takes most of a refresh."""
BAR_COLOURS = {
    "instructions": "$text-muted",
    "tools": "$warning",
    "summary": "$error",
    "prompts": "$primary",
    "reasoning": "$secondary",
    "calls": "$warning",
    "answers": "$success",
}
"""By group of parts; the bar's marks tell them apart too."""


class ContextScreen(ListScreen[None]):
    """Shows the next prompt part by part; its changes count from the next turn on."""

    KEY_HINT = "f fold result · d drop turn · p pin · o tools off · same key undoes · Esc back"
    AUTO_FOCUS = "OptionList"
    BINDINGS = bind_fixed({"f": "fold", "d": "drop", "p": "pin", "o": "switch"})
    DEFAULT_CSS = """
    ContextScreen {
        & > .name { height: auto; }
        & > .bar { height: auto; padding: 0 1; }
        & OptionList {
            width: 1fr; max-width: 100%;
            &:focus { background-tint: $foreground 0%; }
            &:focus > .option-list--option-highlighted {
                background: $primary 35%; color: $text; text-style: bold;
            }
        }
        &:ansi OptionList:focus > .option-list--option-highlighted { text-style: bold underline; }
        & VerticalScroll { display: none; }
        &.-wide VerticalScroll { display: block; width: 2fr; }
        &.-wide OptionList { width: 3fr; }
    }
    """

    def __init__(
        self,
        prompt: NextPrompt,
        measured: AgentContext,
        seen: object,
        prompts: Mapping[int, str],
        on_change: Callable[[], None],
    ) -> None:
        """``seen``: `read_row_state` before it was measured. ``prompts``: of turns, by first entry."""
        super().__init__()
        self._prompt, self._prompts, self._on_change = prompt, prompts, on_change
        self._measured = measured
        self._cached: int | None = None
        self._parts: dict[str, list[ContextPart]] = {}
        self._seen = seen  # the state that the rows depend on, when they were last measured

    def compose_head(self) -> ComposeResult:
        yield Static("Context", classes="name", markup=False)
        yield Static("", classes="bar", markup=False)

    def on_mount(self) -> None:
        self.set_interval(POLL_SECONDS, self._poll)
        run_latest(self, "default", self._read_cached)

    def on_resize(self, _: events.Resize) -> None:
        self.call_after_refresh(self.refresh_rows)

    @property
    def search_text(self) -> str:
        """Nothing is searched here: letters are keys."""
        return ""

    def _poll(self) -> None:
        if (seen := read_row_state(self._prompt)) != self._seen:
            self._seen = seen
            run_latest(self, "measure", self._measure)

    async def _measure(self) -> None:
        # In a thread: of a long conversation it takes longer than a key may wait.
        self._measured = await asyncio.to_thread(self._prompt.measure)
        self.refresh_rows()

    async def _read_cached(self) -> None:
        self._cached = await self._prompt.cached_tokens()
        if self.has_widgets:
            self._show_bar()

    def make_rows(self, search: str) -> Sequence[Option]:
        self._show_bar()
        self._parts = {}
        return list(self._rows(self._measured))

    def _rows(self, context: AgentContext) -> Iterator[Option]:
        for turn, parts in groupby(context.parts, lambda part: part.turn):
            group = list(parts)
            if turn is not None:
                start = min(part.entry or 0 for part in group)
                prompt = " ".join(display_text(self._prompts.get(start, "")).split())
                name = f"{turn} ❯ {prompt}"
                yield self._row(f"turn {turn}", name, group, turn_note(group), head=True)
            for number, part in enumerate(group):
                place = part.entry if turn is not None else f"{part.kind} {part.name}"
                name = ("    " if turn is not None else "") + display_text(part_name(part))
                yield self._row(f"part {place} {number}", name, [part], part_note(part))
            if turn is None:
                yield from self._rows_off(group)

    def _rows_off(self, parts: Sequence[ContextPart]) -> Iterator[Option]:
        host = self._prompt.runtime.host
        if host.withheld or not any(part.kind == "system" for part in parts):
            return
        on = {tool.server for tool in host.tools()}
        for server in dict.fromkeys(tool.server for tool in host.all_tools()):
            if server not in on:
                name = f"tools · {display_text(server)}"
                yield self._row(f"off {server}", name, [], "switched off")

    def _row(
        self, row_id: str, name: str, parts: list[ContextPart], note: str, *, head: bool = False
    ) -> Option:
        context = self._measured
        self._parts[row_id] = parts
        tokens = sum(part.tokens for part in parts)
        columns = self.option_list.scrollable_content_region.width - 2
        room = max(10, columns - NUMBER_COLUMNS - NOTE_COLUMNS)
        label = _row_label(name, room, tokens, tokens / max(1, context.context_length), note, head)
        return Option(label, row_id)

    def _show_bar(self) -> None:
        context = self._measured
        used, length = context.tokens, context.context_length
        words = [f"{used:,} of {length:,} tokens"]
        if self._cached is not None:
            words.append(f"{self._cached:,} in memory")
        if context.compactable:
            words.append(f"/compact frees up to {context.compactable:,}")
        if withheld := self._prompt.runtime.host.withheld:
            words.append(display_text(withheld))
        self.query_one(".name", Static).update(Content("Context: " + " · ".join(words)))
        columns = max(1, self.size.width - 2)
        widths = bar_widths(context, columns)
        bar = [(BAR_MARKS[name] * count, BAR_COLOURS[name]) for name, count in widths.items()]
        free = (FREE_MARK * (columns - sum(widths.values())), "$text-muted")
        legend = Content("  ").join([
            *(Content.assemble((BAR_MARKS[name], BAR_COLOURS[name]), f" {name}") for name in widths),
            Content.assemble((FREE_MARK, "$text-muted"), " free"),
        ])  # fmt: skip
        lines = [Content.assemble(*bar, free), legend]
        self.query_one(".bar", Static).update(Content("\n").join(lines))

    def row_details(self, row_id: str, search: str) -> Content:
        form, parts = self._prompt.runtime.format, self._parts.get(row_id, [])
        entry = parts[0].entry if len(parts) == 1 else None
        if form is None or entry is None:
            return Content("")
        ids = self._prompt.conversation.entries[entry].prompt_ids
        if not parts[0].tokens:
            return Content("The prompt has nothing of this.").stylize("$text-muted")
        raw = b"".join(form.token_bytes(token) for token in ids[:MAX_DETAIL_TOKENS])
        cut = len(ids) - MAX_DETAIL_TOKENS
        more = f"\n… {cut:,} more tokens" if cut > 0 else ""
        return Content(display_text(raw.decode("utf-8", "replace")) + more)

    def choose_row(self, row_id: str) -> None:
        """Say which keys change the row: neither Enter nor a click changes the prompt."""
        parts = self._parts.get(row_id, [])
        if row_id.startswith("off ") or any(part.kind == "tools" and part.name for part in parts):
            hint = "Press o to switch this server's tools off, or on again."
        elif parts and parts[0].turn is not None:
            fold = "f to fold it, " if all(part.kind == "result" for part in parts) else ""
            hint = f"Press {fold}d to drop this turn, or p to pin it; the same key undoes it."
        else:
            hint = "This part is in every prompt."
        self.app.clear_notifications()
        self.notify(hint)

    def action_fold(self) -> None:
        entry = next((part.entry for part in self._highlighted), None)
        results = [part for part in self._highlighted if part.kind == "result"]
        if entry is None or len(results) != len(self._highlighted):
            self.notify("Only the results of tools can be folded.", severity="warning")
        else:
            self._change(toggle_fold, entry)

    def action_drop(self) -> None:
        self._change_turn(toggle_dropped)

    def action_pin(self) -> None:
        self._change_turn(toggle_pinned)

    def action_switch(self) -> None:
        row_id = self.highlighted_id or ""
        names = [part.name for part in self._highlighted if part.kind == "tools"]
        server = row_id.removeprefix("off ") if row_id.startswith("off ") else "".join(names)
        if not server:
            self.notify("This row does not show a server's tools.", severity="warning")
            return
        self._prompt.toggle_server_tools(server)
        self._changed()

    @property
    def _highlighted(self) -> list[ContextPart]:
        return self._parts.get(self.highlighted_id or "", [])

    def _change_turn(self, choice: Callable[[Format, Conversation, int], None]) -> None:
        turn = next((part.turn for part in self._highlighted), None)
        if turn is None:
            self.notify("This row is of no turn.", severity="warning")
        else:
            self._change(choice, turn)

    def _change(self, choice: Callable[[Format, Conversation, int], None], at: int) -> None:
        async def change() -> None:
            await self._prompt.choose(choice, at)
            self._changed()

        self.run_worker(change())

    def _changed(self) -> None:
        self._on_change()
        self._poll()
        run_latest(self, "default", self._read_cached)


def read_row_state(prompt: NextPrompt) -> object:
    """Read what the rows depend on, to compare it later."""
    host, conversation = prompt.runtime.host, prompt.conversation
    offered = [(tool.server, tool.name) for tool in host.tools()]
    marks = [(e.dropped, e.pinned, e.shortened_ids is None) for e in conversation.entries]
    return offered, marks, conversation.compacted


@lru_cache(maxsize=MAX_REMEMBERED_LABELS)
def _row_label(name: str, room: int, tokens: int, share: float, note: str, head: bool) -> Content:
    cell = Content(name).truncate(room, ellipsis=True, pad=True)
    return Content.assemble(
        cell.stylize("bold") if head else cell.stylize("" if tokens else "$text-muted"),
        f"{tokens:>10,}",
        (f"{share:>7.1%}  ", "$text-muted"),
        (note, "$warning"),
    )
