"""Changes how the app looks, and saves what the person chooses."""

from collections.abc import Callable

from agent.errors import UserError
from tui import theme as themes
from tui.app_context import AppContext
from tui.controllers.message_picker import MessagePicker


class Appearance:
    """The theme, the colours of probabilities, and the view of running turns."""

    def __init__(
        self, app: AppContext, picker: MessagePicker, save_setting: Callable[[str, str], None]
    ) -> None:
        self._app, self._picker, self._save_setting = app, picker, save_setting

    def choose_theme(self, name: str = "") -> None:
        app = self._app
        app.theme = name or themes.next_theme(app.theme)
        app.clear_notifications()  # the one that names the theme before
        app.notify(f"Theme: {app.theme}", timeout=2, markup=False)
        self._save("theme", app.theme)

    def choose_probability_scale(self, name: str) -> None:
        self.set_probability_scale(name)
        self._app.notify(f"Probabilities are coloured {name}.", timeout=2, markup=False)
        self._save("probability_scale", name)

    def set_probability_scale(self, name: str | None) -> None:
        self._app.default_screen.set_class(name == "blue-orange", "-blue-orange")

    async def toggle_view(self) -> None:
        app, transcript = self._app, self._app.live.visible_transcript
        await self._picker.keep_picked(transcript.toggle_view())
        newest = transcript.newest_exchange
        if newest is None or not newest.turn.running:
            view = "as live panes" if transcript.shows_panes else "as conversation"
            app.notify(f"Running turns are shown {view}.", timeout=2)
        if transcript is app.transcript:
            self._save("view", "panes" if transcript.shows_panes else "conversation")

    def _save(self, key: str, value: str) -> None:
        try:
            self._save_setting(key, value)
        except UserError as error:
            self._app.notify(str(error), severity="warning", markup=False)
