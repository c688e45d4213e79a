"""The hint on the prompt's border."""

from __future__ import annotations

from collections.abc import Callable

from agent.config.keys import KeyBindings


class PromptHints:
    """Chooses the hint: what the keys mean now, unless there is something else to say."""

    def __init__(self, key_bindings: KeyBindings, show: Callable[[str], None]) -> None:
        """``show``: called with the hint whenever it may have changed."""
        label = key_bindings.label
        self._idle = f"Enter sends · {label('newline')} new line · Esc stops · {label('help')} help"
        now = f"{label('steer')} sends now · {label('answer')} answers now"
        self._busy = f"Enter queues · {now} · Esc stops"
        self._scrolled = f"scrolled up · {label('scroll_bottom')} returns to the end"
        self._text = self._tab = ""
        self._is_busy = self._is_scrolled = False
        self._show = show
        self._update()

    def show(self, text: str = "") -> None:
        """Show a hint until the next one; without text, the default hint."""
        self._text = text
        self._update()

    def set_tab(self, text: str = "") -> None:
        """Show this by default, for the visible tab; without text, the prompt's keys."""
        self._text, self._tab = "", text
        self._update()

    def set_turn_running(self, running: bool) -> None:
        """Show by default what the keys mean while a turn runs, or while none does."""
        self._is_busy = running
        self._update()

    def set_scrolled_away(self, scrolled_away: bool) -> None:
        """Show by default how to get back to the end, while the conversation does not follow it."""
        self._is_scrolled = scrolled_away
        self._update()

    def _update(self) -> None:
        default = self._tab or (self._busy if self._is_busy else self._idle)
        self._show(self._text or (self._scrolled if self._is_scrolled else default))
