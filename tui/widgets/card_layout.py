"""The layout of a card: what it asks above the answers; where rows are short, both keep some."""

from collections.abc import Sequence

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

MIN_TOP_ROWS = 3
"""Rows that the topmost widget keeps, as long as that is no more than half of all."""


class CardLayout(Layout):
    """Stacks widgets without spacing; each layout shares the rows: a widget that is cut scrolls."""

    name = "card"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        """Place the children, as high as they want to be where ``size`` has no height yet."""
        viewport = parent.app.size
        rows = [child.get_content_height(size, viewport, size.width) for child in children]
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
