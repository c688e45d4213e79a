"""``#TEXT`` in the app: a line for the project's AGENTS.md."""

from pathlib import Path

import pytest

from tests.support.fake_app import FakeSession, drive_app
from tui.state.command import parse_instruction


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("#use tabs", "use tabs"),
        ("#  use tabs ", "use tabs"),
        ("#", ""),
        ("# ", ""),
        ("##use tabs", None),
        (" #include <a.h>", None),
        ("# Heading\ntext", None),
        ("use tabs", None),
    ],
)
def test_parse_instruction_is_one_line_behind_one_mark(text: str, parsed: str | None) -> None:
    assert parse_instruction(text) == parsed


async def test_instruction_is_added_and_no_turn_starts(tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    async with drive_app(FakeSession(root=tmp_path), size=(200, 24)) as driver:
        await driver.type_text("# use [red]tabs", "enter")
        await driver.expect_text(f'Added "- use [red]tabs" to {file}.')
        assert file.read_text() == "- use [red]tabs\n"
        assert not driver.session.turns and not driver.app.prompt.text
        turn = await driver.ask("## Heading")
        assert turn.prompt_text == "## Heading"
        await driver.type_text("#while it runs", "enter")
        await driver.expect_text('Added "- while it runs"')
        await driver.type_text("#steered", "ctrl+s")
        await driver.expect_text('Added "- steered"')
        assert not turn.steering and not driver.app.queue.prompts
        turn.end()
        assert (await driver.ask("# Heading\ntext")).prompt_text == "# Heading\ntext"
    assert file.read_text() == "- use [red]tabs\n- while it runs\n- steered\n"


async def test_refused_instruction_returns_to_prompt(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").symlink_to(tmp_path / "elsewhere")
    async with drive_app(FakeSession(root=tmp_path), size=(200, 24)) as driver:
        await driver.type_text("#", "enter")
        await driver.expect_text("Write an instruction behind the #, as in #use tabs.")
        assert driver.app.prompt.text == "#"
        await driver.type_text("x", "enter")
        await driver.expect_text("AGENTS.md: it is a link to")
        assert driver.app.prompt.text == "#x" and not driver.session.turns
    assert not (tmp_path / "elsewhere").exists()
