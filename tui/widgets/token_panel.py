"""Shows facts and alternatives of the token under the cursor of the token view."""

import json
from collections.abc import Mapping
from math import exp

from rich.cells import cell_len
from textual import events
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from agent.turn.token_choices import TokenChoice, TokenChoices
from tui.guarded import Guarded
from tui.keymap import bind_fixed
from tui.util.format import display_text
from tui.widgets.panes import PaneTitle

MAX_BYTES = 16
"""Bytes of a token that are listed; few have more."""
TEXT_CELLS = 14
MIN_BAR_PROBABILITY = 0.005
"""A token that is less likely has no bar."""
MIN_ROWS_STACKED = 14
"""Rows of the panel from which on the facts are above the others."""
MIN_ROWS_BESIDE, MIN_COLUMNS_BESIDE = 8, 57
"""Rows and columns of it from which on they are next to them."""
MIN_LIST_ROWS = 3
"""Rows that the list and its head keep next to facts that the title has no room for."""
TITLE_EDGES = 4
"""Cells of the rule at the ends of a title."""
SMALL_ORDER = ("text", "sampled", "model", "rank", "grammar", "id", "bytes")
"""The facts in a small panel, the most wanted first."""
GRAMMAR_WORDS = {"forced": "forced: nothing else fits", "forbidden": "forbidden", "free": "allowed"}


class AlternativeList(OptionList):
    """The likeliest other tokens."""

    class Resized(Message):
        """Posted when the bars have another width than before."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class TokenPanel(Guarded, Container):
    """Shows the facts of one token and, next to or below them, the likeliest others with their
    probabilities; in a small panel facts are in the title, as far as there is room, and a few rows."""

    BINDINGS = bind_fixed({"p": "screen.colour_tokens"}, priority=True)
    DEFAULT_CSS = """
    TokenPanel {
        height: 12; display: none; layout: horizontal;
        & > PaneTitle { dock: top; padding: 0; }
        & .facts { width: 2fr; height: 1fr; padding: 0 1; }
        & .others { width: 3fr; height: 1fr; layout: vertical; }
        & .head { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: clip; }
        & OptionList {
            height: 1fr; padding: 0; border: none; background: $background;
            scrollbar-size-vertical: 1; scrollbar-gutter: stable;
            text-wrap: nowrap; text-overflow: ellipsis;
            &:focus { border: none; background-tint: transparent; }
            & > .option-list--option { padding: 0 1; }
            & > .option-list--option-highlighted { background: $background; color: $text; }
            &:focus > .option-list--option-highlighted { background: $panel; }
        }
        &:ansi OptionList:focus > .option-list--option-highlighted { text-style: bold underline; }
        &.-stacked, &.-small { layout: vertical; & .facts, & .others { width: 1fr; } }
        &.-stacked .facts { height: 8; }
        &.-stacked .others { margin-top: 1; }
        &.-open { display: block; }
    }
    """

    def __init__(self) -> None:
        self._title_bar = PaneTitle()
        self._facts_text = Static("", classes="facts", markup=False)
        self._head = Static("", classes="head", markup=False)
        self.alternatives = AlternativeList(markup=False)
        others = Container(self._head, self.alternatives, classes="others")
        super().__init__(self._title_bar, self._facts_text, others)
        self._title = self._kind = ""
        self._facts: dict[str, str] = {}  # facts of the token that need no further computation
        self.choices: TokenChoices | None = None
        self._state = ""  # why the probabilities are not known
        self._texts: dict[int, bytes] = {}
        self._is_small = False

    @property
    def has_alternatives(self) -> bool:
        return self.choices is not None and bool(self.choices.alternatives)

    def show_token(self, token: int, raw: bytes, number: int, kind: str, state: str) -> None:
        """``number``: of all that was read, from 0. ``state``: why probabilities are not known."""
        self._title, self._kind, self.choices = f"Token {number + 1:,}", kind, None
        self._facts = {"id": f"{token}", "text": quoted(raw), "bytes": listed_bytes(raw)}
        self.show_state(state)
        if self.alternatives.option_count:  # clearing lays the screen out again
            self._head.update("", layout=False)
            self.alternatives.clear_options()

    def show_choices(self, choices: TokenChoices, texts: dict[int, bytes]) -> None:
        """Show the token's probabilities and the others. ``texts``: the bytes of each token."""
        self.choices, self._texts = choices, texts
        self.show_state("")
        self._show_alternatives()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        is_stacked = height >= MIN_ROWS_STACKED
        self._is_small = not is_stacked and (width < MIN_COLUMNS_BESIDE or height < MIN_ROWS_BESIDE)
        self.set_class(is_stacked, "-stacked")
        self.set_class(self._is_small, "-small")
        self._show_again()

    def on_alternative_list_resized(self, message: AlternativeList.Resized) -> None:
        message.stop()
        self._show_again()

    def _show_again(self) -> None:
        self.show_state(self._state)
        if self.choices is not None:
            self._show_alternatives()

    def show_state(self, state: str) -> None:
        """Show the token, and why the probabilities are not known; empty: they are."""
        rows, self._state = dict(self._facts), state
        if not rows:
            return
        if (choices := self.choices) is not None:
            chosen = choices.chosen
            rows |= {
                "sampled": format_probability(chosen.probability),
                "model": format_probability(own_probability(chosen)),
                "rank": "not known" if chosen.rank is None else f"{chosen.rank:,}",
            }
            if chosen.grammar is not None:
                rows["grammar"] = GRAMMAR_WORDS[chosen.grammar]
        if self._is_small:
            self._show_few_rows(self._title, rows, state)
            return
        self._title_bar.border_title = Content(f"{self._title} · {self._kind}")
        self._set_rows(None)
        width = self._facts_text.scrollable_content_region.width or 80
        lines = [
            Content.assemble((f"{name:8}", "$text-muted"), value).truncate(width, ellipsis=True)
            for name, value in rows.items()
        ]
        if state:
            lines.append(Content.styled(state, "$text-muted"))
        self._facts_text.update(Content("\n").join(lines), layout=False)

    def _show_few_rows(self, title: str, rows: Mapping[str, str], state: str) -> None:
        """Put what the title has room for into it, and the rest into rows that the list can spare."""
        width, height = self.size
        facts = [
            value if name in ("text", "grammar") else f"{name} {value}"
            for name in SMALL_ORDER
            if (value := rows.get(name))
        ]
        while facts and cell_len(longer := f"{title} · {facts[0]}") <= width - TITLE_EDGES:
            title = longer
            del facts[0]
        self._title_bar.border_title = Content(title)
        left = Content.styled(state, "$text-muted") if state else Content(" · ".join(facts))
        if state:
            needed, spare = height, height - 1
        else:
            needed = left.get_height({}, max(1, width - 2)) if facts else 0
            spare = height - 1 - MIN_LIST_ROWS
        self._set_rows(max(0, min(needed, spare)))
        self._facts_text.update(left, layout=False)

    def _set_rows(self, facts: int | None) -> None:
        """Set how many rows of a small panel the facts take; None: it is not small."""
        list_rows = self.size.height - 1 - (facts or 0)
        self._facts_text.styles.height = facts
        self._facts_text.display = facts != 0
        self._head.display = facts is None or list_rows >= MIN_LIST_ROWS

    def _show_alternatives(self) -> None:
        assert self.choices is not None
        width = max(0, self.alternatives.scrollable_content_region.width - 2)
        highlighted = self.alternatives.highlighted
        self.alternatives.clear_options()
        self._head.update(f"{'instead':{TEXT_CELLS}} sampled   model", layout=False)
        self.alternatives.add_options([
            Option(self._other_row(other, width), id=str(other.token))
            for other in self.choices.alternatives
        ])  # fmt: skip
        self.alternatives.highlighted = highlighted if highlighted is not None else 0
        self.alternatives.scroll_to_highlight()

    def _other_row(self, other: TokenChoice, width: int) -> Content:
        text = quoted(self._texts.get(other.token, b""))
        cell = Content(text).truncate(TEXT_CELLS, ellipsis=True, pad=True)
        sampled, own = other.probability, own_probability(other)
        numbers = f"{format_probability(sampled):>8}{format_probability(own):>8}"
        room = width - TEXT_CELLS - len(numbers) - 1
        forbidden = other.grammar == "forbidden"
        mark = "forbidden" if room >= len("forbidden") else "✗"
        if not forbidden:
            mark = probability_bar(sampled or 0.0, own, room)
        style = "$text-warning" if forbidden else "$accent"
        return Content.assemble(cell, numbers, " ", (mark, style))


def own_probability(choice: TokenChoice) -> float:
    """The probability in the model's own distribution."""
    return exp(choice.logprob)


def quoted(raw: bytes) -> str:
    """A token's text in quotes, with escapes for what cannot be seen; of parts of one its bytes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return listed_bytes(raw)
    return display_text(json.dumps(text, ensure_ascii=False))


def listed_bytes(raw: bytes) -> str:
    more = f" … {len(raw):,} bytes" if len(raw) > MAX_BYTES else ""
    return raw[:MAX_BYTES].hex(" ") + more


def format_probability(value: float | None) -> str:
    """A probability in percent; 0 is of tokens that were cut off, None is not known."""
    if not value:
        return "–" if value is None else "cut off"
    percent = 100 * value
    if percent < 0.05:
        return "<0.1 %"
    return "100 %" if percent > 99.95 else f"{percent:.1f} %"


def probability_bar(sampled: float, own: float, width: int) -> str:
    """Two bars in one row: the upper half is as long as the first, the lower as the second."""
    lengths = [
        max(1, round(value * width)) if value >= MIN_BAR_PROBABILITY and width > 0 else 0
        for value in (sampled, own)
    ]
    both = min(lengths)
    return "█" * both + ("▀" if lengths[0] > both else "▄") * (max(lengths) - both)
