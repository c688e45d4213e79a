"""The app as slash commands see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.app_context import AppContext

if TYPE_CHECKING:
    from tui.controllers.appearance import Appearance
    from tui.controllers.chat import ChatController
    from tui.controllers.message_picker import MessagePicker
    from tui.controllers.navigation import Navigator
    from tui.controllers.served_tabs import ServedTabs
    from tui.controllers.startup import Startup
    from tui.controllers.token_explorer import TokenExplorer


class CommandContext(AppContext):
    """The app with its controllers, as commands and the main screen see it."""

    appearance: Appearance
    chat: ChatController
    message_picker: MessagePicker
    navigator: Navigator
    served_tabs: ServedTabs
    startup: Startup
    tokens: TokenExplorer
