"""Displays the prompts that wait while a turn runs."""

from textual.content import Content
from textual.widgets import Static

from tui.state.own_turn import PromptQueue
from tui.util.attachments import without_attachments

MAX_VISIBLE_PROMPTS = 3


class QueueBar(Static):
    """Shows the queued prompts, and the steering messages that wait."""

    DEFAULT_CSS = "QueueBar { height: auto; padding: 0 2; color: $text-muted; display: none; }"

    def __init__(self, queue: PromptQueue) -> None:
        super().__init__("", markup=False)
        self._queue, self._lines = queue, list[str]()
        queue.on_change = self._update_lines

    def _update_lines(self) -> None:
        waiting = [("to this turn", text) for text in self._queue.steering] + [
            ("queued", text) for text in self._queue.prompts
        ]
        lines = [
            f"{when}: {' '.join(without_attachments(text).split())[:200]}"
            for when, text in waiting[:MAX_VISIBLE_PROMPTS]
        ]
        if (rest := len(waiting) - MAX_VISIBLE_PROMPTS) > 0:
            lines.append(f"… and {rest} more")
        if lines != self._lines:
            self._lines = lines
            self.update(Content("\n".join(lines)))
            self.display = bool(lines)
