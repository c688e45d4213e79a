"""The search in the token view: goes from one occurrence of a text to the next."""

from __future__ import annotations

from collections.abc import Sequence

from tui.widgets.search import BaseSearchBar
from tui.widgets.token_browser import TokenBrowser


class TokenSearchBar(BaseSearchBar):
    """Moves the cursor of a token stream to the tokens with which the hits begin."""

    PLACEHOLDER = "Search the tokens"

    def __init__(self, stream: TokenBrowser) -> None:
        super().__init__()
        self._stream = stream

    async def find(self, query: str) -> Sequence[int]:
        return self._stream.find_tokens(query.casefold())

    async def show_hit(self, hit: int, query: str) -> None:
        self._stream.move_cursor_to(hit)

    def leave(self) -> None:
        self._stream.focus()
