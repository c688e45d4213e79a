"""A login on a card: what is pasted, and where the focus is."""

import asyncio
import math

from textual.widgets import Button, Input

from tests.support.fake_app import ScreenDriver, drive_app
from tools.mcp.login import LoginDialog, LoginError, LoginRequest
from tui.widgets.login_card import LoginCard

PAGE = "https://login.example.org/authorize"
NO_CODE = "there is no code in that: paste the address that the login page ends at"


class Login:
    """A login that ends with the text that has a code, or when it is told to fail."""

    def __init__(self) -> None:
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.read: list[str] = []

    async def run(self, dialog: LoginDialog) -> None:
        dialog.show(PAGE, "")
        assert dialog.paste is not None and dialog.warn is not None
        while not self.failure.done():
            pasted = asyncio.ensure_future(dialog.paste())
            await asyncio.wait([pasted, self.failure], return_when=asyncio.FIRST_COMPLETED)
            if self.failure.done():
                pasted.cancel()
                break
            self.read.append(pasted.result())
            if "code=" in pasted.result():
                return
            dialog.warn(NO_CODE)
        raise LoginError("the login timed out")


async def begin(driver: ScreenDriver, login: Login) -> asyncio.Future[bool]:
    """Begin the login on its card, up to where a code can be pasted."""
    request = LoginRequest("guarded", "It wants a login.", login.run)
    answer = asyncio.ensure_future(driver.app.chat.cards.log_in(request))
    await driver.wait_for(lambda: driver.app.query(LoginCard))
    # It takes the focus by itself, and no Enter in the moment after that.
    await driver.wait_for(lambda: driver.app.query_one(LoginCard).has_focus_within)
    driver.app.chat.cards.early_key_delay = 0.0
    driver.app.chat.cards.focus_delay = math.inf  # and not again, from whoever left it
    await driver.pilot.press("enter")
    await driver.expect_text(PAGE)
    await driver.wait_for(lambda: isinstance(driver.app.focused, Input))
    return answer


async def test_login_card_asks_again_for_text_without_a_code() -> None:
    async with drive_app() as driver:
        login = Login()
        answer = await begin(driver, login)
        await driver.pilot.press(*"no code", "enter")
        await driver.expect_text("There is no code in that: paste the address")
        assert not answer.done() and driver.app.query_one(Input).value == ""
        assert isinstance(driver.app.focused, Input)
        await driver.pilot.press(*"http://127.0.0.1/?code=1", "enter")
        await driver.wait_for(answer.done)
        assert answer.result() and login.read == ["no code", "http://127.0.0.1/?code=1"]


async def test_login_card_that_was_left_takes_no_focus() -> None:
    async with drive_app() as driver:
        login, prompt = Login(), driver.app.prompt
        answer = await begin(driver, login)
        prompt.focus()
        await driver.wait_for(lambda: prompt.has_focus)
        await driver.pilot.press(*"what")
        login.failure.set_result(None)
        await driver.expect_text("the login timed out", "Log in")
        assert prompt.has_focus and prompt.text == "what"
        await driver.pilot.press("tab")
        await driver.wait_for(lambda: isinstance(driver.app.focused, Button))
        await driver.pilot.press("ctrl+d")
        await driver.wait_for(answer.done)
        assert not answer.result()
