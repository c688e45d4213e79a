"""A card that asks the person something; where rows are short, question and answers keep some."""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar

from textual.containers import Vertical
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from tui.guarded import Guarded

AnswerT = TypeVar("AnswerT")
MIN_TOP_ROWS = 3
"""Rows that the topmost widget keeps, as long as that is no more than half of all."""


class CardLayout(Layout):
    """Stacks widgets without spacing; each layout shares the rows: a widget that is cut scrolls."""

    name = "card"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        """Place the children, as high as they want to be where ``size`` has no height yet."""
        rows = [child.get_content_height(size, parent.app.size, size.width) for child in children]
        if size.height:
            rows = share_card_rows(size.height, rows)
        placements, y = [], 0
        for child, height in zip(children, rows, strict=True):
            region = Region(0, y, size.width, height)
            placements.append(WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, child))
            y += height
        return placements


def share_card_rows(room: int, needs: Sequence[int]) -> list[int]:
    """Share rows: the topmost widget gets what the others leave, but some in any case."""
    kept = max(1, min(MIN_TOP_ROWS, room // 2))
    rows = [min(needs[0], max(kept, room - sum(needs[1:])))]
    for need in needs[1:]:
        rows.append(min(need, room - sum(rows)))
    return rows


class Card(Guarded, Vertical, Generic[AnswerT]):
    """A question that is mounted below the conversation while ``answer`` waits."""

    DEFAULT_CSS = """
    Card {
        dock: bottom; height: auto; max-height: 100%; padding: 0 1; border: round $warning;
        border-title-color: $text-warning; border-subtitle-color: $text-muted;
    }
    """

    def __init__(self, *children: Widget) -> None:
        super().__init__(*children)
        self.styles.set_rule("layout", CardLayout())
        self._decided: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()

    async def answer(self) -> AnswerT:
        return await self._decided

    def decide(self, answer: AnswerT) -> None:
        if not self._decided.done():
            self._decided.set_result(answer)
