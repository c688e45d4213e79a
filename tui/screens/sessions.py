"""The screen of stored conversations: search, preview, open, rename, fork, delete."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from textual.content import Content
from textual.widgets.option_list import Option

from agent.store.conversations import Store, delete_conversation
from agent.store.export import local_time
from agent.store.records import ConversationSummary, StoredTurn
from tui.guarded import run_latest
from tui.keymap import bind_fixed
from tui.screens.dialogs import ConfirmDialog, TextDialog
from tui.screens.list_screen import ListScreen
from tui.util.format import display_text
from tui.util.text_search import highlight_matches

T = TypeVar("T")
PREVIEW_LINES, PREVIEW_CHARS = 6, 600
"""Lines and characters of a prompt or an answer in the preview."""
PREVIEW_TURNS = 30
"""Turns in the preview, the latest."""


class SessionsScreen(ListScreen[str]):
    """Lists the conversations; its result is the id of the one to open."""

    HEADING = "Conversations"
    KEY_HINT = "Enter open · Ctrl-A all · Ctrl-R rename · Ctrl-F fork · Ctrl-D delete · Esc"
    SEARCH_HINT = "Type to search titles and messages"
    EMPTY_TEXT = "No conversations yet."
    BINDINGS = bind_fixed(
        {"ctrl+a": "everywhere", "ctrl+r": "rename", "ctrl+f": "fork", "ctrl+d": "delete"},
        priority=True,
    )

    def __init__(
        self, store: Store, summaries: Sequence[ConversationSummary], current: str, *, running: bool
    ) -> None:
        """``current``: id of the open conversation. ``running``: whether one of its turns runs."""
        super().__init__()
        self._store, self._current, self._is_answering = store, current, running
        self._summaries = {summary.id: summary for summary in summaries}
        self._turns: list[StoredTurn] = []  # those of the highlighted conversation
        self._matches: set[str] | None = None
        """The conversations that the search has found; None: nothing is searched."""
        self._is_searching = self._chooses_first = False
        folders = {summary.folder for summary in summaries}
        self._everywhere = store.folder not in folders
        """Whether the conversations of all folders are listed; so it begins where this one has none."""

    def on_mount(self) -> None:
        for sentence in self._store.damage.take():
            self.notify(sentence, severity="warning", markup=False)

    def _change(self, change: Callable[[], object]) -> None:
        """Change the store, also where the screen is closed meanwhile; a failure is shown."""
        self.app.run_worker(self._change_store(change))

    async def _change_store(self, change: Callable[[], T]) -> T | None:
        try:
            result = await self._store.run(change)
            summaries = await self._store.run(self._store.summaries)
        except sqlite3.Error as error:
            self.notify(f"Nothing was changed: {error}.", severity="error", markup=False)
            return None
        self._summaries = {summary.id: summary for summary in summaries}
        if self in self.app.screen_stack:
            self.refresh_rows()
        return result

    def on_search_changed(self) -> None:
        self._is_searching = True
        run_latest(self, "search", self._search, self.search_text)

    async def _search(self, text: str) -> None:
        self._chooses_first = False
        self._matches = await self._store.run(lambda: self._store.search(text)) if text else None
        self._is_searching = False
        self.refresh_rows()
        if self._chooses_first:
            super().choose_highlighted()

    def choose_highlighted(self) -> None:
        """Choose the highlighted conversation, or what is highlighted once the search is over."""
        if self._is_searching:
            self._chooses_first = True
        else:
            super().choose_highlighted()

    def make_rows(self, search: str) -> Sequence[Option]:
        return [
            Option(self._label(summary), summary.id)
            for summary in self._summaries.values()
            if (self._matches is None or summary.id in self._matches)
            and (self._everywhere or summary.folder == self._store.folder)
        ]

    def action_everywhere(self) -> None:
        """List the conversations of all folders, or again those of this one."""
        self._everywhere = not self._everywhere
        self.refresh_rows()

    def _label(self, summary: ConversationSummary) -> Content:
        here = summary.id == self._current
        branch = " · branch" if summary.parent else ""
        turns = f"{summary.turns} turn{'' if summary.turns == 1 else 's'}"
        opened = "open · " if here else ""
        folder = f" · {summary.folder}" if self._everywhere and summary.folder else ""
        about = f"{opened}{local_time(summary.updated)} · {turns}{branch} · {summary.model}{folder}"
        title = (display_text(summary.title) or "(no title)", "bold $accent" if here else "")
        return Content.assemble(title, "\n", (display_text(about), "$text-muted"))

    def show_details(self) -> None:
        if (row_id := self.highlighted_id) is None:
            super().show_details()
        else:
            run_latest(self, "details", self._show_turns, row_id)

    async def _show_turns(self, row_id: str) -> None:
        self._turns = await self._store.run(lambda: self._store.turns(row_id))
        if self.has_widgets and row_id == self.highlighted_id:
            super().show_details()

    def row_details(self, row_id: str, search: str) -> Content:
        turns = self._turns
        if search:
            texts = [f"{turn.prompt}\n{turn.response.output_text}".lower() for turn in turns]
            hits = [turn for turn, text in zip(turns, texts, strict=True) if search.lower() in text]
            turns = hits or turns
        parts: list[Content] = []
        if len(turns) > PREVIEW_TURNS:
            earlier = f"… {len(turns) - PREVIEW_TURNS} earlier turns"
            parts.append(Content.styled(earlier, "$text-muted"))
        for turn in turns[-PREVIEW_TURNS:]:
            parts.append(Content(f"❯ {_excerpt(turn.prompt, search)}").stylize("bold"))
            response = turn.response
            text = _excerpt(response.output_text, search)
            if response.status != "completed":
                reason = response.error.message if response.error else response.status
                text = f"{text}\n({reason})".strip()
            parts.append(Content(text))
        return highlight_matches(Content("\n\n").join(parts), search)

    def choose_row(self, row_id: str) -> None:
        self.dismiss(row_id)

    async def action_rename(self) -> None:
        if (summary := self._summaries.get(self.highlighted_id or "")) is None:
            return

        def rename(title: str | None) -> None:
            if title:
                self._change(lambda: self._store.rename(summary.id, title))

        await self.app.push_screen(TextDialog("Title", display_text(summary.title)), rename)

    def action_fork(self) -> None:
        """Open a copy of the highlighted conversation, which continues separately."""
        if (row_id := self.highlighted_id) is not None:
            self.run_worker(self._fork(row_id))

    async def _fork(self, row_id: str) -> None:
        store = self._store
        name = await self._change_store(lambda: store.fork(store.read(row_id)).id)
        if name is not None:
            self.dismiss(name)

    async def action_delete(self) -> None:
        if (summary := self._summaries.get(self.highlighted_id or "")) is None:
            return
        if summary.id == self._current and self._is_answering:
            self.notify("A turn is running in it: stop that first.", severity="warning")
            return

        def delete(confirmed: bool | None) -> None:
            if confirmed:
                self._change(lambda: delete_conversation(self._store, summary.id))

        turns = f"{summary.turns} turn{'' if summary.turns == 1 else 's'}"
        question = f"Delete “{display_text(summary.title)}” ({turns}) for good?"
        await self.app.push_screen(ConfirmDialog(question, "delete"), delete)


def _excerpt(text: str, search: str) -> str:
    """Return the first lines of a text, or those around the first match of the search."""
    lines = display_text(text).strip().split("\n")
    matches = [n for n, line in enumerate(lines) if search and search.lower() in line.lower()]
    start = max(0, matches[0] - 2) if matches else 0
    part = lines[start : start + PREVIEW_LINES]
    before, after = start > 0, start + PREVIEW_LINES < len(lines)
    text = "\n".join(["…"] * before + part + ["…"] * after)
    if len(text) <= PREVIEW_CHARS:
        return text
    at = max(0, text.lower().find(search.lower()) - PREVIEW_CHARS // 2) if search else 0
    return f"{'…' * (at > 0)}{text[at : at + PREVIEW_CHARS]}…"
