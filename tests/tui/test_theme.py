"""Everything that is written can be read, in each of our themes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style

from tests.support.fake_app import Played, person, says
from tests.tui.scenes import Scene, approvals, screens, turns
from tui import theme

SCENES = [
    turns.conversation, turns.compacted, turns.picked, approvals.edit, approvals.refused,
    approvals.question, approvals.search, approvals.commands, screens.models, screens.servers,
    screens.server_failed, screens.raw,
]  # fmt: skip
LEAST = {theme.DARK.name: 4.5, theme.LIGHT.name: 4.5, theme.CONTRAST.name: 7.0}
"""WCAG 2: its levels AA and, for high contrast, AAA."""


def written(app: Any) -> Iterator[tuple[str, Style]]:
    """Letters and numbers on the screen."""
    for strip in app.screen._compositor.render_strips():
        for text, style, _ in strip:
            if any(map(str.isalnum, text)):
                yield text, style


def ratio(style: Style) -> float:
    """Between the colours of letters and of what is behind them, as WCAG 2 defines it."""
    assert style.color and style.bgcolor
    low, high = sorted(
        sum(
            share * (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4)
            for share, one in zip((0.2126, 0.7152, 0.0722), color.normalized, strict=True)
        )
        for color in (style.color.get_truecolor(), style.bgcolor.get_truecolor())
    )
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_what_is_written_stands_out(scene: Scene, tmp_path: Path) -> None:
    async with person(Played(root=tmp_path), size=(120, 40)) as someone:
        await scene(someone)
        for name, least in LEAST.items():
            someone.app.theme = name
            await someone.pilot.pause()
            pale = {text: ratio(style) for text, style in written(someone.app)}
            assert not {text: one for text, one in pale.items() if one < least}, name
        someone.app.theme = theme.ANSI.name
        await someone.pilot.pause()
        for text, style in written(someone.app):
            assert style.color and (style.color.is_default or style.color != style.bgcolor), text


async def test_a_theme_whose_grey_goes_by_its_background() -> None:
    async with person(size=(80, 24)) as someone:
        turn = await someone.ask("and?")
        says(turn, "> as somebody said").close(True)
        turn.end()
        await someone.sees("somebody said")
        someone.app.theme = "textual-light"
        await someone.pilot.pause()
        quoted = {text: ratio(style) for text, style in written(someone.app) if "somebody" in text}
        assert quoted and min(quoted.values()) > 4.5, quoted
