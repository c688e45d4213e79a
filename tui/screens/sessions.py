"""All kept conversations: search, look into, open, rename, fork, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content

from tui.screens.confirm import Confirm
from tui.screens.list_screen import Room, Row
from tui.screens.text_dialog import Entry
from tui.util.format import shown

if TYPE_CHECKING:
    from agent.store.conversations import Store
    from agent.store.records import KeptTurn, Summary

LINES, LETTERS = 6, 600
"""Of a prompt or an answer the preview has at most so many."""
TURNS = 30
"""The preview has at most so many turns, the latest."""


class Sessions(Room[str]):
    """Its result: the id of the conversation to open."""

    NAME = "Conversations"
    KEYS = "Enter opens · Ctrl-R renames · Ctrl-F forks · Ctrl-D deletes · Esc goes back"
    SEARCH = "Type to search in titles and in what was said"
    EMPTY = "No conversation is kept yet."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+r", "rename", show=False, priority=True),
        Binding("ctrl+f", "fork", show=False, priority=True),
        Binding("ctrl+d", "delete", show=False, priority=True),
    ]

    def __init__(self, store: Store, current: str, *, running: bool) -> None:
        """``current``: the one that is open; ``running``: a turn of it runs."""
        super().__init__()
        self._store, self._current, self._answering = store, current, running
        self._summaries: dict[str, Summary] = {}
        self._read()

    def _read(self) -> None:
        """Not at every key: each conversation's turns are counted."""
        self._summaries = {one.id: one for one in self._store.summaries()}

    def rows(self, search: str) -> Sequence[Row]:
        found = self._store.search(search) if search else None
        return [
            Row(one.id, self._label(one))
            for one in self._summaries.values()
            if found is None or one.id in found
        ]

    def _label(self, one: Summary) -> Content:
        from agent.store.export import when

        here = one.id == self._current
        branch = " · branch" if one.parent else ""
        turns = f"{one.turns} turn{'' if one.turns == 1 else 's'}"
        about = f"{'open · ' if here else ''}{when(one.updated)} · {turns}{branch} · {one.model}"
        title = (shown(one.title) or "(no title)", "bold $accent" if here else "")
        return Content.assemble(title, "\n", (shown(about), "$text-muted"))

    def details(self, row: str, search: str) -> Content:
        from agent.cli.run import final_text

        turns = self._store.turns(row)
        if search:
            turns = [turn for turn in turns if _has(turn, search)] or turns
        parts: list[Content] = []
        if len(turns) > TURNS:
            parts.append(Content(f"… {len(turns) - TURNS} turns before").stylize("$text-muted"))
        for turn in turns[-TURNS:]:
            parts.append(Content(f"❯ {_head(turn.prompt, search)}").stylize("bold"))
            response = turn.response
            text = _head(final_text(response), search)
            if response.status != "completed":
                why = response.error.message if response.error else response.status
                text = f"{text}\n({why})".strip()
            parts.append(Content(text))
        whole = Content("\n\n").join(parts)
        return _marked(whole, search)

    def choose(self, row: str) -> None:
        self.dismiss(row)

    # --- what else can be done with one ---

    async def action_rename(self) -> None:
        if (one := self._summaries.get(self.chosen or "")) is None:
            return

        def renamed(title: str | None) -> None:
            if title:
                self._store.rename(one.id, title)
                self._read()
                self.fill()

        await self.app.push_screen(Entry("Title", shown(one.title)), renamed)

    def action_fork(self) -> None:
        """A branch with all that was said; it is opened."""
        if (row := self.chosen) is not None:
            self.dismiss(self._store.fork(self._store.load(row)).id)

    async def action_delete(self) -> None:
        if (one := self._summaries.get(self.chosen or "")) is None:
            return
        if one.id == self._current and self._answering:
            self.notify("It is being answered right now: stop that first.", severity="warning")
            return

        def answered(yes: bool | None) -> None:
            if yes:
                from agent.cli.sessions import forget

                forget(self._store, one.id)
                self._read()
                self.fill()

        turns = f"{one.turns} turn{'' if one.turns == 1 else 's'}"
        question = f"Delete “{shown(one.title)}” ({turns}) for good?"
        await self.app.push_screen(Confirm(question, "delete"), answered)


def _has(turn: KeptTurn, search: str) -> bool:
    from agent.cli.run import final_text

    return search.lower() in f"{turn.prompt}\n{final_text(turn.response)}".lower()


def _head(text: str, search: str) -> str:
    """The first lines, or those around what is searched."""
    lines = shown(text).strip().split("\n")
    found = [n for n, line in enumerate(lines) if search and search.lower() in line.lower()]
    start = max(0, found[0] - 2) if found else 0
    part = lines[start : start + LINES]
    before, after = start > 0, start + LINES < len(lines)
    text = "\n".join(["…"] * before + part + ["…"] * after)
    at = max(0, text.lower().find(search.lower()) - LETTERS // 2) if search else 0
    return text if len(text) <= LETTERS else f"{'…' * (at > 0)}{text[at : at + LETTERS]}…"


def _marked(content: Content, search: str) -> Content:
    """Where what is searched stands."""
    if not search:
        return content
    text, wanted, at = content.plain.lower(), search.lower(), 0
    while (at := text.find(wanted, at)) >= 0:
        content = content.stylize("reverse", at, at + len(wanted))
        at += len(wanted)
    return content
