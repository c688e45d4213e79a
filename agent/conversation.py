"""What was said, as the token ids that the model saw and wrote.

Nothing that the model generated is rendered again: its messages are kept as they came, so the engine's
memory of them stays valid. Of a finished turn only the reasoning is dropped, as Harmony wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.formats.base import Format, Head


@dataclass(slots=True)
class Entry:
    """One message's ids; ``reasoning`` ones go when their turn is over."""

    ids: list[int]
    reasoning: bool = False


@dataclass(slots=True)
class Conversation:
    """The messages of one conversation, in order."""

    id: str
    entries: list[Entry] = field(default_factory=list)
    head: Head | None = None
    saved: int = 0
    """So many entries are in the store, and will not change."""
    _head_ids: list[int] = field(default_factory=list)

    def prompt(self, form: Format) -> list[int]:
        """All ids up to where the assistant goes on writing."""
        ids = list(self._head_ids)
        for entry in self.entries:
            ids += entry.ids
        return ids + form.open_assistant()

    def set_head(self, form: Format, head: Head) -> None:
        """Tools, effort or instructions may differ from turn to turn; rendered only when they do."""
        if head != self.head:
            self._head_ids = form.head(head)
            self.head = head

    def add(self, ids: Sequence[int]) -> None:
        """A message that was rendered: the user's, a tool's result, one of an imported history."""
        self.entries.append(Entry(list(ids)))

    def add_generated(
        self, form: Format, ids: Sequence[int], spans: Sequence[tuple[int, int, bool]]
    ) -> None:
        """A generation's messages: ``spans`` are (start, end, is reasoning), positions in ``ids``."""
        for start, end, reasoning in spans:
            # The first message's opening stands in the prompt, not in what was generated.
            opening = form.open_assistant() if start == 0 else []
            message = form.close_message([*opening, *ids[start:end]])
            self.entries.append(Entry(message, reasoning))

    def end_turn(self) -> None:
        self.entries = [entry for entry in self.entries if not entry.reasoning]
