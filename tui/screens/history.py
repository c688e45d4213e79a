"""The screen of the prompts that were sent, to take one again."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets.option_list import Option

from tui.screens.list_screen import ListScreen
from tui.util.format import display_text
from tui.util.text_search import highlight_matches

MAX_ROWS, LABEL_CHARS = 200, 200
"""Prompts that are listed at a time, and characters of each in its row."""


class HistoryScreen(ListScreen[str]):
    """Lists prompts, the latest first; its result is the one to take."""

    HEADING = "Earlier prompts"
    KEY_HINT = "Enter take · Esc back"
    EMPTY_TEXT = "No prompts yet."

    def __init__(self, prompts: Sequence[str]) -> None:
        """``prompts``: the oldest first; one that was sent again is listed once."""
        super().__init__()
        self._prompts = list(dict.fromkeys(reversed(prompts)))

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
