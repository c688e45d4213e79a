"""The screen of the prompts that were sent, to take one again."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets.option_list import Option

from tui.keymap import bind_fixed
from tui.screens.list_screen import ListScreen
from tui.state.prompt_history import PromptHistory
from tui.util.format import display_text
from tui.util.text_search import highlight_matches

MAX_ROWS, LABEL_CHARS = 200, 200
"""Prompts that are listed at a time, and characters of each in its row."""


class HistoryScreen(ListScreen[str]):
    """Lists prompts of this folder or of all, the latest first; its result is the one to take."""

    HEADING = "Earlier prompts"
    KEY_HINT = "Enter take · Ctrl-A all folders · Esc back"
    EMPTY_TEXT = "No prompts yet."
    BINDINGS = bind_fixed({"ctrl+a": "everywhere"}, priority=True)

    def __init__(self, history: PromptHistory) -> None:
        """A prompt that was sent again is listed once."""
        super().__init__()
        lists = (history.entries, history.everywhere)
        self._prompts, self._other_list = (list(dict.fromkeys(reversed(texts))) for texts in lists)

    def action_everywhere(self) -> None:
        """List the prompts of all folders, or again those of this one."""
        self._prompts, self._other_list = self._other_list, self._prompts
        self.refresh_rows()

    def make_rows(self, search: str) -> Sequence[Option]:
        words = search.casefold().split()
        matching = [
            Option(Content(" ".join(display_text(prompt[:LABEL_CHARS]).split())), str(number))
            for number, prompt in enumerate(self._prompts)
            if all(word in prompt.casefold() for word in words)
        ]
        return matching[:MAX_ROWS]

    def row_details(self, row_id: str, search: str) -> Content:
        return highlight_matches(Content(display_text(self._prompts[int(row_id)])), *search.split())

    def choose_row(self, row_id: str) -> None:
        self.dismiss(self._prompts[int(row_id)])
