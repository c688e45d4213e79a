"""The person's messages in the transcript: prompts, on which keys act, and messages to a turn."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import ClassVar

from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Offset
from textual.selection import Selection
from textual.widgets import Static

from tui.guarded import Guarded
from tui.keymap import bind, bind_fixed
from tui.state.item_view import ItemView
from tui.state.turn_view import TurnView
from tui.util.attachments import attached_files, without_attachments
from tui.util.format import wrap_line
from tui.util.text_search import find_folded
from tui.widgets.virtual_scroll import Foldable

MAX_PROMPT_LINES, MAX_PROMPT_CHARACTERS = 6, 2000
"""The longest prompt that the transcript repeats as a whole; the rest is folded."""
COMMAND_KEYS = {
    "e": "edit", "t": "thought", "r": "retry", "b": "branch", "c": "copy", "w": "times",
    "p": "probs", "u": "rewind",
}  # fmt: skip
"""Keys on a picked message, and the slash commands that they run with the message's number."""
STEP_KEYS = {"up": -1, "down": 1, "ctrl+down": 1, "alt+down": 1}
"""Keys that pick the previous (-1) or the next (1) message."""
BRANCH_KEYS = {"left": -1, "right": 1}
"""Keys that switch to the previous (-1) or the next (1) branch."""
PICK_KEYS = (*COMMAND_KEYS, *STEP_KEYS, *BRANCH_KEYS, "escape", "enter")
"""All keys that a picked message takes; any other goes to the app."""


class UserMessage(Guarded, Foldable, Static):
    """Shows the prompt of a turn, its attached files and the number of its branch."""

    # With priority: a key typed next is meant for the message that this one picks.
    BINDINGS: ClassVar[list[BindingType]] = [
        *bind_fixed({key: f"screen.press_picked('{key}')" for key in PICK_KEYS}, priority=True),
        bind("select", "screen.press_picked('up')", priority=True),
    ]
    DEFAULT_CSS = """
    UserMessage {
        height: auto; padding: 0 1; margin-bottom: 1; color: $text; text-style: bold;
        &.-live { margin-bottom: 0; }
        &.-picked { background: $panel; border-left: outer $accent; padding-left: 0; }
    }
    """

    def __init__(self, turn: TurnView, *, above_panes: bool) -> None:
        """``above_panes``: the turn is shown as panes, without a margin above them."""
        classes = "-live" if above_panes else None
        super().__init__(prompt_content(turn, expanded=False), markup=False, classes=classes)
        self.turn = turn

    def update_fold(self) -> None:
        self.update(prompt_content(self.turn, expanded=self.expanded))

    def find_text(self, query: str) -> Iterator[tuple[Selection, int]]:
        row, width = 0, max(1, self.content_size.width)
        text = prompt_content(self.turn, expanded=self.expanded).plain
        for y, line in enumerate(text.split("\n")):
            ends = [end for _, end in wrap_line(line, width)]
            for start, end in find_folded(line, query):
                yield Selection(Offset(start, y), Offset(end, y)), row + bisect_right(ends, start)
            row += len(ends)

    def pick(self) -> None:
        self.can_focus = True
        self.add_class("-picked")
        self.screen.set_focus(self, scroll_visible=False)  # at once, before the next key
        self.scroll_visible(animate=False, top=True)

    def on_blur(self) -> None:
        self.can_focus = False
        self.remove_class("-picked")


def prompt_content(turn: TurnView, *, expanded: bool) -> Content:
    """The prompt as it is shown, with what is attached to it; a long one is folded by default."""
    text = without_attachments(turn.prompt).strip("\n")
    lines, more = text.split("\n"), []
    if not expanded and len(lines) > MAX_PROMPT_LINES:
        more = [f"… {len(lines) - MAX_PROMPT_LINES + 1} more lines"]
        lines = lines[: MAX_PROMPT_LINES - 1]
    begin = "\n".join(lines)
    if not expanded and len(begin) > MAX_PROMPT_CHARACTERS:
        begin = begin[:MAX_PROMPT_CHARACTERS]
        more = [f"… {len(text) - MAX_PROMPT_CHARACTERS:,} more characters"]
    lines = [*begin.split("\n"), *more]
    mark = "❯" if turn.source == "app" else f"{turn.source} ❯"
    if turn.branch_position:
        lines[-1] += f"  ‹{turn.branch_position[0]}/{turn.branch_position[1]}›"
    for path, size in attached_files(turn.prompt):
        lines.append(f"⎘ {path} · {size:,} line{'' if size == 1 else 's'}")
    return Content.assemble((f"{mark} ", "$accent"), "\n  ".join(lines))


class SteeringMessage(Static):
    """Shows one steering message, at the place in the turn where the model read it."""

    DEFAULT_CSS = "SteeringMessage { height: auto; color: $text; text-style: bold; }"

    def __init__(self, item: ItemView) -> None:
        super().__init__(Content(f"❯ {(item.final_text or '').strip()}"), markup=False)

    def follow(self) -> None:
        """Do nothing: a steering message is complete from the beginning."""

    @property
    def row_count(self) -> int:
        return self.size.height
