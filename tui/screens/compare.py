"""The screen of two answers to one prompt, side by side, with the words in which they differ."""

import difflib
import re
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from tui.guarded import GuardedDialog
from tui.keymap import bind_fixed
from tui.state.item_view import ItemView
from tui.state.turn_view import TurnView
from tui.util.format import format_seconds, format_tokens

FOLLOW_SECONDS = 0.1
MAX_COMPARED_WORDS = 4000
"""Words of both answers together; longer ones are not marked, which would take seconds."""
SCROLL_ROWS = {"up,k": -1, "down,j": 1, "pageup": -10, "pagedown,space": 10}
SCROLL_KEYS = {
    keys: f"scroll({rows})"
    for keys, rows in (SCROLL_ROWS | {"home": -100000, "end": 100000}).items()
}
DIFFERENT_STYLE = "bold underline $warning"
_WORD = re.compile(r"\s*\S+\s*\Z|\s*\S+")

Taken = Literal["left", "right"]


ComparedAnswer = tuple[str, TurnView]
"""A column: what the turn was asked with, and the turn."""


class CompareScreen(GuardedDialog[Taken]):
    """Shows two answers; its result is the one that the conversation continues with."""

    BINDINGS = bind_fixed({"1": "dismiss('left')", "2,escape": "dismiss('right')"} | SCROLL_KEYS)
    DEFAULT_CSS = """
    CompareScreen {
        & > Horizontal { height: 1fr; }
        & VerticalScroll {
            width: 1fr; height: 100%; padding: 0 1; border: round $accent; background: $background;
            border-title-color: $accent; border-subtitle-color: $text-muted;
            scrollbar-size-vertical: 1;
        }
        & .keys { height: 1; padding: 0 1; color: $text-muted; background: $background; }
    }
    """
    KEY_HINT = "1 take left · 2 or Esc take right · ↑ ↓ PgUp PgDn scroll both"

    def __init__(self, left: ComparedAnswer, right: ComparedAnswer) -> None:
        super().__init__()
        self._answers = left, right
        self._seen: object = None

    def compose(self) -> ComposeResult:
        with Horizontal():
            for number, (title, _) in enumerate(self._answers, 1):
                with VerticalScroll(can_focus=False) as column:
                    column.border_title = Content(f"{number} · {title}")
                    yield Static("", markup=False)
        yield Static(self.KEY_HINT, classes="keys", markup=False)

    def on_mount(self) -> None:
        self._follow()
        self.set_interval(FOLLOW_SECONDS, self._follow)

    def _follow(self) -> None:
        turns = [turn for _, turn in self._answers]
        seen = [(turn.status, turn.tokens, sum(len(i.text) for i in turn.items)) for turn in turns]
        if seen == self._seen:
            return
        self._seen = seen
        answers = [turn.answer for turn in turns]
        ended = not any(turn.running for turn in turns)
        marked = mark_differences(*answers) if ended else [Content(text) for text in answers]
        for column, turn, answer in zip(self.query(VerticalScroll), turns, marked, strict=True):
            at_end = column.scroll_y >= column.max_scroll_y
            column.query_one(Static).update(_column_text(turn, answer))
            column.border_subtitle = Content(_facts(turn))
            if turn.running and at_end:
                column.scroll_end(animate=False)

    def action_scroll(self, rows: int) -> None:
        for column in self.query(VerticalScroll):
            column.scroll_relative(y=rows, animate=False)


def _column_text(turn: TurnView, answer: Content) -> Content:
    before = [_item_text(item) for item in turn.items if item.kind != "answer"]
    waits = any(item.state == "waiting" for item in turn.items)
    after = "A call waits for your approval; Esc leads to it." if waits else turn.end_message
    parts = [*before, answer, Content.styled(after, "$text-warning")]
    return Content("\n\n").join(part for part in parts if part.plain.strip())


def _item_text(item: ItemView) -> Content:
    text = str(item.final_text or item.text).strip()
    if item.kind == "call":
        text = "\n".join(filter(None, [f"→ {item.title}", text, (item.result or "").strip()]))
    return Content.styled(text, "$text-muted")


def _facts(turn: TurnView) -> str:
    seconds = 0.0 if turn.ended is None else turn.ended - turn.began
    words = [
        "" if not turn.running else turn.activity,
        format_tokens(turn.tokens) if turn.tokens else "",
        format_seconds(seconds) if seconds >= 0.05 else "",
        f"{turn.speed:.0f} tok/s" if turn.speed else "",
    ]
    return " · ".join(filter(None, words))


def mark_differences(left: str, right: str) -> list[Content]:
    """Both texts, with the words marked that the other one does not have at that place."""
    words = _WORD.findall(left), _WORD.findall(right)
    if sum(map(len, words)) > MAX_COMPARED_WORDS:
        return [Content(left), Content(right)]
    one, other = ([word.strip() for word in side] for side in words)
    marked: tuple[list[Content], list[Content]] = [], []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        style = "" if tag == "equal" else DIFFERENT_STYLE
        for side, (begin, end), out in zip(words, ((a, b), (c, d)), marked, strict=True):
            for word in side[begin:end]:
                blank = len(word) - len(word.lstrip())
                out.append(Content.assemble(word[:blank], (word[blank:], style)))
    return [Content("").join(parts) for parts in marked]
