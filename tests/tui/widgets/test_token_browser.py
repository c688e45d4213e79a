"""The cursor that goes from token to token, in prompts and in what streams."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from agent.formats.protocol import Format
from tests.support.fake_app import screen_text
from tui import theme
from tui.base_screen import BaseScreen
from tui.state.token_colours import TokenTextRenderer
from tui.widgets.token_browser import TokenBrowser

MARK = "<|end|>"


def pieces_format(pieces: Sequence[bytes | str]) -> Format:
    """A format whose token n is the n-th piece; texts in ``<|…|>`` are markup."""

    def token_bytes(token: int) -> bytes:
        piece = pieces[token]
        return piece if isinstance(piece, bytes) else piece.encode()

    def is_markup(token: int) -> bool:
        piece = pieces[token]
        return isinstance(piece, str) and piece.startswith("<|")

    return cast(Format, SimpleNamespace(token_bytes=token_bytes, is_markup=is_markup))


class Bare(App[None]):
    """One token stream, ``width`` columns wide."""

    CSS_PATH = "../../../tui/app.tcss"

    def __init__(self, pieces: Sequence[bytes | str], written: int | None = None) -> None:
        super().__init__()
        self.pieces = pieces
        self.stream = TokenBrowser()
        self.renderer = TokenTextRenderer(pieces_format(pieces), generated=True)
        self.written = len(pieces) if written is None else written

    def get_default_screen(self) -> BaseScreen:
        return BaseScreen()

    def compose(self) -> ComposeResult:
        yield self.stream

    def on_mount(self) -> None:
        self.stream.write_tokens(self.renderer.runs(range(self.written)))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return theme.DEFAULT_VARIABLES

    def write_more(self) -> None:
        """Write all the pieces that are left."""
        self.stream.write_tokens(self.renderer.runs(range(self.written, len(self.pieces))))


def cursor_text(app: Bare) -> str:
    """What is painted in reverse: the cursor."""
    region = app.stream.scrollable_content_region
    strips = (app.stream.render_line(y) for y in range(region.height))
    return "".join(
        segment.text
        for strip in strips
        for segment in strip
        if segment.style and segment.style.reverse
    )


async def press(app: Bare, pilot: Pilot[None], *keys: str) -> int | None:
    await pilot.press(*keys)
    await pilot.pause()
    return app.stream.cursor


async def test_arrows_go_through_all_tokens_and_show_each() -> None:
    snowman, flag = "☃".encode(), "語"
    pieces = [
        "one",
        " two",
        "\n\n",
        snowman[:1],
        snowman[1:2],
        snowman[2:],
        flag,
        MARK,
        MARK,
        " e\u0301",
    ]
    app = Bare(pieces)
    async with app.run_test(size=(40, 8)) as pilot:
        app.screen.set_focus(app.stream)
        assert await press(app, pilot, "ctrl+home") == 0
        seen = []
        for number in range(len(pieces)):
            assert app.stream.cursor == number
            seen.append(cursor_text(app))
            await press(app, pilot, "right")
        assert seen == ["one", " two", " ", "☃", "☃", "☃", "語", MARK, MARK, " e\u0301"]
        assert app.stream.cursor == len(pieces) - 1, "there is none behind the last"
        for number in reversed(range(len(pieces))):
            assert app.stream.cursor == number
            await press(app, pilot, "left")
        assert app.stream.cursor == 0


async def test_up_and_down_keep_the_cell_over_wrapped_and_wide_text() -> None:
    words = [f" w{n:03}" for n in range(30)]  # four in a row of 20 cells
    app = Bare(words)
    async with app.run_test(size=(22, 6)) as pilot:
        app.screen.set_focus(app.stream)
        await press(app, pilot, "ctrl+home", "right", "right")
        first_row = app.stream.cursor
        rows = [await press(app, pilot, "down") for _ in range(3)]
        assert rows == [first_row + 4 * n for n in (1, 2, 3)]  # type: ignore[operator]
        assert [await press(app, pilot, "up") for _ in range(4)] == [10, 6, 2, 2]
        assert await press(app, pilot, "end") == 4, "its blank ends the row"
        assert await press(app, pilot, "home") == 0
        page = await press(app, pilot, "pagedown")
        assert page is not None and page >= 16
        assert await press(app, pilot, "ctrl+end") == 29
        assert "w029" in screen_text(app) and "w001" not in screen_text(app)
        assert await press(app, pilot, "pageup") < 29  # type: ignore[operator]


async def test_down_leaves_a_token_of_several_rows() -> None:
    app = Bare(["a", "\n\n\n\n", "b", " " * 60, "\n", "c"])
    async with app.run_test(size=(20, 12)) as pilot:
        app.screen.set_focus(app.stream)
        assert await press(app, pilot, "ctrl+home") == 0
        assert [await press(app, pilot, "down") for _ in range(4)] == [1, 2, 3, 5]
        assert [await press(app, pilot, "up") for _ in range(4)] == [3, 1, 0, 0]


async def test_cursor_keeps_its_token_while_others_come_and_follows_at_the_end() -> None:
    words = [f" word{n}" for n in range(400)]
    app = Bare(words, written=100)
    async with app.run_test(size=(40, 8)) as pilot:
        app.screen.set_focus(app.stream)
        await press(app, pilot, "ctrl+end", "up")
        kept = app.stream.cursor
        assert kept is not None and kept < 99
        app.write_more()
        await pilot.pause()
        assert app.stream.cursor == kept and cursor_text(app) == words[kept]
        await pilot.resize_terminal(23, 6)
        await pilot.pause()
        assert cursor_text(app) == words[kept], "it is on the screen after a resize"
        assert await press(app, pilot, "ctrl+end") == 399
        app.pieces, app.written = [*words, " more"], 400
        app.renderer = TokenTextRenderer(pieces_format(app.pieces), generated=True)
        app.stream.write_tokens(app.renderer.runs([400]))
        await pilot.pause()
        assert app.stream.cursor == 400 and cursor_text(app) == " more"


async def test_click_puts_cursor_on_token() -> None:
    app = Bare(["one", " two", "\n", "語", "three"])
    async with app.run_test(size=(40, 8)) as pilot:
        await pilot.click(TokenBrowser, offset=(5, 0))
        assert app.stream.cursor == 1
        await pilot.click(TokenBrowser, offset=(1, 1))
        assert app.stream.cursor == 3
        await pilot.click(TokenBrowser, offset=(30, 0))
        assert app.stream.cursor == 2, "the line break"
        await pilot.click(TokenBrowser, offset=(3, 5))
        assert app.stream.cursor == 2, "nothing is there"


async def test_tokens_behind_letters_that_are_longer_folded_are_hit() -> None:
    app = Bare(["Straße", " und", " İz", "mir", ":", " Fox", "\n", "ß", "ß", " fox"])
    async with app.run_test(size=(40, 8)):
        assert app.stream.find_tokens("fox") == [5, 9]
        assert app.stream.find_tokens("mir") == [3]
        assert app.stream.find_tokens("ss") == [0, 7, 8]


async def test_a_window_without_room_shows_no_line_break() -> None:
    app = Bare(["\n"] * 4)
    async with app.run_test(size=(40, 8)) as pilot:
        app.screen.set_focus(app.stream)
        assert await press(app, pilot, "ctrl+home") == 0
        for width in range(4):
            await pilot.resize_terminal(width, 3)
        await pilot.resize_terminal(40, 8)
        assert await press(app, pilot, "right") == 1


async def test_keys_in_an_empty_stream_do_nothing() -> None:
    app = Bare([])
    async with app.run_test(size=(40, 8)) as pilot:
        app.screen.set_focus(app.stream)
        keys = ("left", "down", "pageup", "home", "ctrl+end")
        assert await press(app, pilot, *keys) is None


@pytest.mark.long
@pytest.mark.parametrize("newlines", [True, False], ids=["lines", "one line"])
async def test_a_key_costs_what_is_on_the_screen(
    newlines: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = ["\n" if newlines and n % 12 == 11 else f" word{n}" for n in range(20_000)]
    app = Bare(pieces)
    async with app.run_test(size=(60, 20)) as pilot:
        app.screen.set_focus(app.stream)
        await press(app, pilot, "ctrl+home", *["down"] * 200)
        cost: list[int] = []
        original: Any = type(app.stream.lines[0]).runs

        def counted(line: Any, start: int, end: int) -> Any:
            runs = list(original(line, start, end))
            cost.append(len(runs))
            return iter(runs)

        monkeypatch.setattr(type(app.stream.lines[0]), "runs", counted)
        await press(app, pilot, "down", "up", "right", "left")
        assert sum(cost) < 2000, "a few rows of a few runs each are painted"


async def test_keys_before_there_are_rows_stay_on_the_last_token() -> None:
    app = Bare(["one", " two", " three"])
    async with app.run_test(size=(40, 8)):
        app.stream._rows.clear()
        app.stream.on_focus()
        for _ in range(2):
            app.stream.action_move_cursor("up")
            assert app.stream.cursor == 2


async def test_scrolling_after_a_refresh_to_a_cursor_that_is_gone_does_nothing() -> None:
    app = Bare(["one"])
    async with app.run_test(size=(40, 8)):
        app.stream.cursor, app.stream.follows_last = None, False
        app.stream._scroll_to_cursor()
