"""Offers a login that an MCP server wants, and shows its progress."""

import asyncio
import contextlib
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Input, Static

from tools.mcp.login import LoginDialog, LoginError, LoginRequest
from tui.guarded import Guarded
from tui.util.format import display_text

UNFOCUSED_HINT = "Tab to answer"


class LoginCard(Guarded, VerticalScroll):
    """Asks whether to log in and shows the page to open; mounted while ``answer`` waits."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+d", "decline", "Not now", priority=True)]
    DEFAULT_CSS = """
    LoginCard {
        dock: bottom; height: auto; max-height: 100%; padding: 0 1; border: round $warning;
        border-title-color: $text-warning; border-subtitle-color: $text-muted;
        & .page { color: $text-muted; display: none; }
        & Input { display: none; }
        & .problem { color: $text-error; display: none; }
        & > Horizontal { height: 1; }
        & Button { margin-right: 2; &:focus { text-style: bold underline !important; } }
    }
    """

    def __init__(self, request: LoginRequest) -> None:
        super().__init__()
        self.border_title = Content(f"{display_text(request.server)} wants a login")
        self.border_subtitle = UNFOCUSED_HINT
        self._request = request
        self._choices: asyncio.Queue[bool] = asyncio.Queue()
        self._pasted: asyncio.Queue[str] = asyncio.Queue()
        self.began = False
        """Whether the person has agreed to log in."""

    def compose(self) -> ComposeResult:
        yield Static(display_text(self._request.message), markup=False)
        yield Static(classes="page", markup=False)
        yield Input(placeholder="or paste the address that the browser ends at", compact=True)
        yield Static(classes="problem", markup=False)
        with Horizontal():
            yield Button("Log in", id="login", variant="primary", compact=True)
            yield Button("Not now (Ctrl-D)", id="decline", compact=True)

    def on_descendant_focus(self) -> None:
        self.border_subtitle = ""

    def on_descendant_blur(self) -> None:
        self.border_subtitle = UNFOCUSED_HINT

    def enter(self) -> None:
        self.query_one(Input if self.began else "#login").focus()

    async def answer(self) -> bool:
        """Log in when the person wants it; return whether that was done."""
        dialog = LoginDialog(self._show_page, self._pasted.get, warn=self._show_problem)
        while await self._choices.get():
            self.began = True
            self._set_text(".problem", "")
            login = asyncio.ensure_future(self._request.log_in(dialog))
            declined = asyncio.ensure_future(self._choices.get())
            try:
                await asyncio.wait([login, declined], return_when=asyncio.FIRST_COMPLETED)
                if not login.done():
                    return False
                login.result()
                return True
            except (LoginError, OSError) as error:
                self._set_text(".problem", display_text(str(error)))
                self._show_buttons(running=False)
            finally:
                for task in (login, declined):
                    task.cancel()
                    with contextlib.suppress(BaseException):
                        await task
        return False

    def withdraw(self) -> None:
        if not self.began:
            self._choices.put_nowait(False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "decline":
            self.action_decline()
        else:
            self._show_buttons(running=True)
            self._choices.put_nowait(True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._set_text(".problem", "")
        self._pasted.put_nowait(event.value)
        event.input.clear()

    def action_decline(self) -> None:
        self._choices.put_nowait(False)

    def _show_page(self, url: str, code: str) -> None:
        with_code = f"\nand type the code {display_text(code)}" if code else ""
        self._set_text(".page", f"Log in with your browser: {display_text(url)}{with_code}")
        self.query_one(Input).display = not code
        if not self._is_left:
            self.enter()

    def _show_problem(self, problem: str) -> None:
        """Say why what was pasted cannot be used. ``problem`` is a clause."""
        text = display_text(problem)
        self._set_text(".problem", f"{text[:1].upper()}{text[1:]}.")

    @property
    def _is_left(self) -> bool:
        """Whether the person is somewhere else: the focus stays there."""
        return self.screen.focused is not None and not self.has_focus_within

    def _show_buttons(self, *, running: bool) -> None:
        is_left = self._is_left
        self.query_one("#login").display = not running
        self.query_one("#decline", Button).label = f"{'Cancel' if running else 'Not now'} (Ctrl-D)"
        if not running:
            self.began = False
            self._set_text(".page", "")
            self.query_one(Input).display = False
            if not is_left:
                self.enter()

    def _set_text(self, selector: str, text: str) -> None:
        label = self.query_one(selector, Static)
        label.update(text)
        label.display = bool(text)
