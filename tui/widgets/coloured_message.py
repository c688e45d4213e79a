"""A message of the model as plain text, coloured by the probabilities of its tokens."""

from __future__ import annotations

from tui.state.item_view import ItemView
from tui.widgets.text_stream import TextStream


class ColouredMessage(TextStream, can_focus=False):
    """Shows a message in place of its Markdown, whose marks are tokens too."""

    DEFAULT_CSS = "ColouredMessage { &.-commentary { color: $text-muted; } }"

    def __init__(self, item: ItemView) -> None:
        super().__init__(grows=True, follows=False, classes=f"-{item.kind}")
        self.write_runs(item.coloured or ())
