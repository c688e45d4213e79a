"""What the panel of a token shows in the room that there is."""

import pytest
from textual.app import App, ComposeResult

from agent.turn.token_choices import TokenChoice, TokenChoices
from tests.support.fake_app import drive_app, screen_text
from tests.tui.scenes.tokens import token, token_searched
from tui import theme
from tui.widgets.token_panel import TokenPanel

SIZES = [(80, 24), (200, 17), (60, 15), (40, 12), (130, 10), (80, 10), (80, 8), (60, 6), (80, 5)]


class Bare(App[None]):
    """One panel, ten rows high."""

    def compose(self) -> ComposeResult:
        yield TokenPanel()

    def on_mount(self) -> None:
        panel = self.query_one(TokenPanel)
        panel.add_class("-open")
        panel.styles.height = 10

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme.DEFAULT_VARIABLES


@pytest.mark.parametrize("width", [80, 57, 50])
async def test_bar_of_a_sure_token_ends_before_the_scrollbar(width: int) -> None:
    app = Bare()
    chosen, *others = (TokenChoice(n, 0.0, 1.0, 1, None) for n in range(12))
    async with app.run_test(size=(width, 12)) as pilot:
        panel = app.query_one(TokenPanel)
        options = panel.alternatives
        for columns in (width, width + 7):
            await pilot.resize_terminal(columns, 12)
            panel.show_token(0, b"fox", 5, "generated", "")
            await pilot.pause()
            assert not options.show_vertical_scrollbar
            panel.show_choices(TokenChoices(chosen, tuple(others)), {})
            await pilot.pause()
            assert options.show_vertical_scrollbar
            row = options.render_line(0).text
            assert row.endswith("█ ") and row.count("█") == options.size.width - 1 - 2 - 31
            assert len(row) == options.size.width - 1, "the scrollbar is beside it"


@pytest.mark.long
async def test_token_panel_shows_probabilities_and_an_alternative_at_any_size() -> None:
    async with drive_app(size=(120, 40)) as driver:
        await token(driver)
        for size in [*SIZES, *reversed(SIZES)]:
            await driver.resize(*size)
            await driver.expect_text('"万"', "36.4 %")
            screen = screen_text(driver.app)
            assert "五万六千八十八" in screen, "the token itself\n" + screen
            await driver.pilot.press("enter", "home")
            await driver.wait_for(lambda: '" the"' in screen_text(driver.app))
            await driver.pilot.press("down")
            await driver.expect_text('" I"', "10.8 %")
            await driver.pilot.press("escape")


@pytest.mark.long
async def test_token_panel_says_on_a_short_screen_why_nothing_is_known() -> None:
    async with drive_app(size=(80, 24)) as driver:
        await token_searched(driver)
        for size in ((60, 6), (80, 10), (60, 15)):
            await driver.resize(*size)
            await driver.expect_text("十八", "vllm does not say", "1/1")
        await driver.resize(60, 6)
        await driver.pilot.press("escape", "escape")
        await driver.expect_text("╭", "ready")
        await driver.pilot.press("tab")
        await driver.expect_text('"<|return|>"', gone="╭")
        await driver.pilot.press("x")
        await driver.wait_for(lambda: driver.app.prompt.has_focus)
        await driver.expect_text("│ x", "╭")
