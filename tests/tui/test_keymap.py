"""The keys of config.toml, pressed in the app."""

from typing import Any

from agent.config.keys import ACTIONS, KeyBindings, read_bindings
from agent.models.listing import ModelRow
from tests.support.fake_app import FakeSession, drive_app, make_app, screen_text
from tui.screens.models import ModelsScreen
from tui.screens.pages import PAGE_COLUMNS, HelpScreen, _key_section
from tui.widgets.search import SearchBar


def test_every_action_is_bound() -> None:
    app = make_app(FakeSession())
    bound = [*app._bindings, *app.get_default_screen()._bindings, *app.prompt._bindings]
    assert {binding.id for _, binding in bound if binding.id} == set(ACTIONS)


async def test_chosen_key_replaces_default() -> None:
    bindings = read_bindings({"view": "ctrl+k", "theme": "f2", "fold": "alt+o"})
    saved: list[str] = []
    async with drive_app(
        key_bindings=bindings, save_setting=lambda key, value: saved.append(key)
    ) as driver:
        # The text area's own Ctrl-K would delete the line.
        await driver.pilot.press(*"text", "home", "ctrl+k", "f2", "f4")
        await driver.wait_for(lambda: saved == ["view", "theme"])
        assert driver.app.prompt.text == "text"


async def test_help_hints_and_banner_name_chosen_keys() -> None:
    table = {"help": "f9", "newline": "alt+n", "view": "alt+v", "steer": "ctrl+t,f10"}
    async with drive_app(key_bindings=read_bindings(table), size=(80, 70)) as driver:
        await driver.expect_text(
            "Enter sends · Alt-N new line · Esc stops · F9 help",
            "F9      all keys",
            "@   attach a file          Alt-V   panes or conversation",
        )
        await driver.pilot.press("f1")
        await driver.pilot.press("f9")
        await driver.expect_text(
            "  Alt-N            new line", "Ctrl-T           send to the running"
        )
        assert "(also F10)" in screen_text(driver.app)
        await driver.pilot.press("f9")
        await driver.wait_for(lambda: not isinstance(driver.app.screen, HelpScreen))
        await driver.pilot.press(*"a", "alt+n", *"b")
        assert driver.app.prompt.text == "a\nb"


async def test_keys_of_prompt_can_be_swapped() -> None:
    bindings = read_bindings({"steer": "ctrl+g", "editor": "ctrl+s", "close_tab": "alt+w"})
    async with drive_app(key_bindings=bindings) as driver:
        turn = await driver.ask("first")
        await driver.pilot.press(*"now two", "ctrl+w", *"three", "ctrl+g")
        await driver.wait_for(lambda: turn.steering == ["now three"])
        turn.end()


async def test_key_of_a_screen_stays_there() -> None:
    row = ModelRow("tiny", (), True, True, 1, "embedded", None, "")
    actions: list[Any] = []
    bindings = read_bindings({"sessions": "ctrl+d", "quit": "f10"})
    async with drive_app(key_bindings=bindings) as driver:
        screen = ModelsScreen([row], lambda: [row], {}, "tiny", actions.append)
        await driver.app.push_screen(screen)
        await driver.expect_text("embedded")
        await driver.pilot.press("ctrl+d")
        await driver.wait_for(lambda: actions == [("default", "tiny")])


def test_help_page_fits_into_80_columns() -> None:
    assert all(len(line) <= PAGE_COLUMNS for line in _key_section(KeyBindings()).splitlines())


async def test_search_key_opens_and_closes_search() -> None:
    async with drive_app(key_bindings=read_bindings({"search": "f9"})) as driver:
        (await driver.ask("hello")).end()
        for is_open in (True, False):
            await driver.pilot.press("f9")
            await driver.wait_for(
                lambda is_open=is_open: bool(driver.app.query(SearchBar)) is is_open
            )
        await driver.wait_for(lambda: driver.app.prompt.has_focus)


async def test_wrong_key_is_a_notice_and_default_stays() -> None:
    async with drive_app(key_bindings=read_bindings({"help": "f4", "veiw": "f9"})) as driver:
        await driver.expect_text("F4 cannot be both help and theme", "keys.veiw: there is no such")
        await driver.pilot.press("f1")
        await driver.wait_for(lambda: isinstance(driver.app.screen, HelpScreen))
