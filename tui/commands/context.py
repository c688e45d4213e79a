"""The interface of the app for slash commands; ``AgentApp`` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.app_context import AppContext

if TYPE_CHECKING:
    from tui.controllers.chat import ChatController
    from tui.controllers.navigation import Navigator
    from tui.controllers.served_tabs import ServedTabs
    from tui.controllers.token_explorer import TokenExplorer


class CommandContext(AppContext):
    """The app as its commands see it: the controllers, and actions that have a key too."""

    chat: ChatController
    navigator: Navigator
    served_tabs: ServedTabs
    tokens: TokenExplorer

    def choose_theme(self, name: str) -> None:
        """Set a theme and save it as the person's choice."""
        raise NotImplementedError

    def choose_probability_scale(self, name: str) -> None:
        """Set the colours of probabilities and save them as the person's choice."""
        raise NotImplementedError

    def action_help(self) -> None:
        raise NotImplementedError

    async def action_leave(self) -> None:
        """End the app with exit code 0."""
        raise NotImplementedError

    def action_theme(self) -> None:
        """Choose the next of the app's own themes."""
        raise NotImplementedError

    async def action_view(self) -> None:
        raise NotImplementedError

    def action_fold(self) -> None:
        raise NotImplementedError

    async def action_raw(self) -> None:
        raise NotImplementedError

    async def action_served(self, by: int) -> None:
        """Show the next (1) or the previous (-1) tab of another program."""
        raise NotImplementedError
