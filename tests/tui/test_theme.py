"""Contrast of text and background in each of the app's own themes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.style import Style

from tests.support.fake_app import FakeSession, drive_app, emit_message, screen_strips
from tests.tui.scenes import Scene, approvals, screens, tokens, turns
from tui import theme

SCENES = [
    turns.conversation, turns.compacted, turns.picked, approvals.edit, approvals.refused,
    approvals.question, approvals.search, approvals.commands, screens.models, screens.servers,
    screens.server_failed, screens.raw, tokens.token_alternatives, tokens.probabilities,
    tokens.probabilities_blue_orange,
]  # fmt: skip
MIN_CONTRAST = {theme.DARK.name: 4.5, theme.LIGHT.name: 4.5, theme.CONTRAST.name: 7.0}
"""Contrast ratios of WCAG 2, level AA and, for high contrast, AAA:
https://www.w3.org/TR/WCAG22/#contrast-minimum."""


def styled_texts(app: Any) -> Iterator[tuple[str, Style]]:
    """The texts on the screen that have letters or digits, with their styles."""
    for strip in screen_strips(app):
        for text, style, _ in strip:
            if any(map(str.isalnum, text)):
                yield text, style


def contrast_ratio(style: Style) -> float:
    """The contrast ratio of colour and background as WCAG 2 defines it, 1 to 21."""
    assert style.color and style.bgcolor
    low, high = sorted(
        sum(
            weight * (value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4)
            for weight, value in zip((0.2126, 0.7152, 0.0722), color.normalized, strict=True)
        )
        for color in (style.color.get_truecolor(), style.bgcolor.get_truecolor())
    )
    return (high + 0.05) / (low + 0.05)


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_text_contrast_meets_wcag(scene: Scene, tmp_path: Path) -> None:
    async with drive_app(FakeSession(root=tmp_path), size=(120, 40)) as driver:
        await scene(driver)
        for name, minimum in MIN_CONTRAST.items():
            driver.app.theme = name
            await driver.pilot.pause()
            ratios = {text: contrast_ratio(style) for text, style in styled_texts(driver.app)}
            low = {text: ratio for text, ratio in ratios.items() if ratio < minimum}
            assert not low, name
        driver.app.theme = theme.ANSI.name
        await driver.pilot.pause()
        for text, style in styled_texts(driver.app):
            assert style.color and (style.color.is_default or style.color != style.bgcolor), text


async def test_auto_colour_of_foreign_theme_is_readable() -> None:
    async with drive_app(size=(80, 24)) as driver:
        turn = await driver.ask("and?")
        emit_message(turn, "> as somebody said").close(True)
        turn.end()
        await driver.expect_text("somebody said")
        driver.app.theme = "textual-light"
        await driver.pilot.pause()
        quoted = {
            text: contrast_ratio(style)
            for text, style in styled_texts(driver.app)
            if "somebody" in text
        }
        assert quoted and min(quoted.values()) > 4.5, quoted
