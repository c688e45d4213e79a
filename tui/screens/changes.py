"""The screen of what a conversation has changed in files; takes turns, files and hunks back."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath

from textual.content import Content
from textual.widgets.option_list import Option

from agent.errors import AgentError
from tools.builtin.files.file_tree import State
from tools.builtin.files.journal import Change, ChangeJournal, Outcome, net_changes
from tui.markdown.highlight import highlight
from tui.screens.dialogs import ConfirmDialog
from tui.screens.list_screen import ListScreen
from tui.util.format import display_text

CONTEXT_LINES = 3
MAX_LINES = 4000
"""Lines of a diff that are shown."""
MARKS = {"created": "A", "changed": "M", "deleted": "D"}
STYLES = {
    "keyword": "$text-accent", "name": "$text-primary", "string": "$text-success",
    "number": "$text-warning", "comment": "$text-muted italic",
}  # fmt: skip
Hunk = Sequence[tuple[str, int, int, int, int]]
"""Operations of difflib: a kind, and the lines of before and after."""


@dataclass
class ChangedFile:
    """A file of one turn."""

    change: Change
    turn: str
    before: bytes | None = None
    after: bytes | None = None
    note: str = ""
    """The text in place of a diff; empty where there is one."""
    hunks: list[Hunk] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.note:
            matcher = difflib.SequenceMatcher(None, *self.lines(), autojunk=False)
            self.hunks = [*matcher.get_grouped_opcodes(CONTEXT_LINES)]

    def lines(self) -> tuple[list[str], list[str]]:
        before, after = (
            (data or b"").decode("utf-8", "surrogateescape").splitlines(keepends=True)
            for data in (self.before, self.after)
        )
        return before, after

    def without_hunk(self, hunk: Hunk) -> bytes:
        """The content with the lines of before in place of a hunk's."""
        before, after = self.lines()
        (_, a, _, b, _), (_, _, a_end, _, b_end) = hunk[0], hunk[-1]
        lines = [*after[:b], *before[a:a_end], *after[b_end:]]
        return "".join(lines).encode("utf-8", "surrogateescape")

    @property
    def counts(self) -> str:
        added = removed = 0
        for hunk in self.hunks:
            for kind, a, a_end, b, b_end in hunk:
                if kind != "equal":
                    added, removed = added + b_end - b, removed + a_end - a
        return f"+{added} −{removed}" if self.hunks else ""


def read_changes(journal: ChangeJournal, turns: Collection[str]) -> list[ChangedFile]:
    """Read the net changes of each turn, the latest turn first; blocks."""
    steps, files = journal.steps(turns), list[ChangedFile]()
    for turn in dict.fromkeys(step.turn for step in reversed(steps)):
        for change in net_changes(step for step in steps if step.turn == turn):
            first, *rest = journal.diff(change)
            contents = journal.content(change.before), journal.content(change.after)
            is_text = first.startswith("--- ") or any(line.startswith("--- ") for line in rest)
            note = "" if is_text and _are_files(change.before, change.after) else first
            files.append(ChangedFile(change, turn, *contents, note))
    return files


def _are_files(*states: State) -> bool:
    return all(state is None or state.kind == "file" for state in states)


class ChangesScreen(ListScreen[None]):
    """Lists turns, below them files, below those hunks."""

    HEADING = "Changed files"
    KEY_HINT = "Enter takes a turn, a file or a part of it back · PageUp PageDown · Esc"
    SEARCH_HINT = "Type to search paths"
    EMPTY_TEXT = "No tool has changed a file in this conversation."

    def __init__(
        self,
        journal: ChangeJournal,
        turns: dict[str, str],
        files: list[ChangedFile],
        on_outcome: Callable[[Outcome], None],
    ) -> None:
        """``turns``: labels by the ids of their responses. ``on_outcome``: what was taken back."""
        super().__init__()
        self._journal, self._turns, self._on_outcome = journal, turns, on_outcome
        self._files = files

    def make_rows(self, search: str) -> Sequence[Option]:
        rows: list[Option] = []
        turn = None
        for number, file in enumerate(self._files):
            path = display_text(file.change.path).replace("\n", " ")
            if search.casefold() not in path.casefold():
                continue
            if file.turn != turn:
                turn = file.turn
                label = Content.styled(self._turns.get(turn, turn), "bold")
                rows.append(Option(label, id=f"turn {number}"))
            mark, counts = MARKS[file.change.verb], (f"  {file.counts}", "$text-muted")
            rows.append(Option(Content.assemble(f"  {mark} {path}", counts), id=f"file {number}"))
            if len(file.hunks) > 1:
                for part, hunk in enumerate(file.hunks):
                    label = Content.styled(f"    line {hunk[0][3] + 1}", "$text-muted")
                    rows.append(Option(label, id=f"hunk {number} {part}"))
        return rows

    def _find(self, row_id: str) -> tuple[str, ChangedFile, list[Hunk]]:
        kind, number, *part = row_id.split()
        file = self._files[int(number)]
        return kind, file, [file.hunks[int(part[0])]] if part else file.hunks

    def row_details(self, row_id: str, search: str) -> Content:
        kind, file, hunks = self._find(row_id)
        if kind == "turn":
            same = [each for each in self._files if each.turn == file.turn]
            names = (f"{each.change.verb} {display_text(each.change.path)}" for each in same)
            return Content("\n".join([*names, "", "Enter takes all of it back."]))
        name = Content.styled(display_text(file.change.path), "bold")
        if file.note:
            return Content("\n\n").join([name, Content(display_text(file.note))])
        return Content("\n").join([name, *_diff_rows(file, hunks)])

    def choose_row(self, row_id: str) -> None:
        kind, file, hunks = self._find(row_id)
        path = display_text(file.change.path)
        what = {
            "turn": f"Take back all that “{self._turns.get(file.turn, file.turn)}” has changed?",
            "file": f"Take back what this turn has changed in {path}?",
            "hunk": f"Take back this part of {path}?",
        }[kind]

        async def on_close(agreed: bool | None) -> None:
            if agreed:
                await self._take_back(kind, file, hunks)

        self.app.push_screen(ConfirmDialog(what, "take it back"), on_close)

    async def _take_back(self, kind: str, file: ChangedFile, hunks: list[Hunk]) -> None:
        path = None if kind == "turn" else file.change.path
        undo = partial(self._journal.undo, {file.turn}, path)
        if kind == "hunk":
            undo = partial(self._undo_hunk, file, hunks[0])
        try:
            outcome = await asyncio.to_thread(undo)
        except (AgentError, OSError) as error:
            self.notify(f"Nothing was taken back: {error}.", severity="error", markup=False)
            return
        self._on_outcome(outcome)
        for name, why in outcome.conflicts.items():
            text = f"{display_text(name)} stays as it is: it {why}."
            self.notify(text, severity="warning", markup=False)
        self._files = await asyncio.to_thread(read_changes, self._journal, self._turns)
        self.refresh_rows()

    def _undo_hunk(self, file: ChangedFile, hunk: Hunk) -> Outcome:
        """Write the file without a hunk, as a part of its turn. Raises OSError, ToolError."""
        path = file.change.path
        with self._journal.lock:
            if self._journal.now(path) != file.change.after:
                return Outcome([], {path: "was changed since then"})
            real, data = self._journal.root.path / path, file.without_hunk(hunk)
            self._journal.make({real: data}, file.turn)
            return Outcome([Change(path, file.change.after, self._journal.now(path))])


def _diff_rows(file: ChangedFile, hunks: Sequence[Hunk]) -> list[Content]:
    """Lines with their numbers before and after, and the code's colours."""
    language = PurePath(file.change.path).suffix[1:]
    before, after = ([*_coloured("".join(lines), language)] for lines in file.lines())
    width = len(str(max(len(before), len(after))))
    rows: list[Content] = []

    def add(sign: str, style: str, numbers: tuple[int | None, int | None], line: Content) -> None:
        old, new = (" " * width if n is None else f"{n + 1:>{width}}" for n in numbers)
        rows.append(Content.assemble((f"{old} {new} ", "$text-muted"), (f"{sign} ", style), line))

    for hunk in hunks:
        rows.append(Content(""))
        for kind, a, a_end, b, b_end in hunk:
            if kind == "equal":
                for old, new in zip(range(a, a_end), range(b, b_end), strict=True):
                    add(" ", "", (old, new), after[new])
                continue
            for old in range(a, a_end):
                add("-", "$text-error bold", (old, None), before[old])
            for new in range(b, b_end):
                add("+", "$text-success bold", (None, new), after[new])
    if len(rows) > MAX_LINES:
        rows[MAX_LINES:] = [Content(f"… {len(rows) - MAX_LINES} more lines")]
    return rows


def _coloured(text: str, language: str) -> list[Content]:
    """The lines of a text with the colours of its language."""
    count = len(text.splitlines())
    whole = Content.assemble(
        *((piece, STYLES.get(style, "")) for piece, style in highlight(text, language))
    )
    lines = whole.split("\n", allow_blank=True)
    # A form feed, for example, ends a line for Python alone: there are fewer lines to show.
    return lines[:count] + [Content("")] * (count - len(lines))
