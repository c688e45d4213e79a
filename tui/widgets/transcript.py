"""A conversation from its first exchange to the one that runs, followed at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

if TYPE_CHECKING:
    from tui.said import Said
    from tui.widgets.exchange import Exchange


class Transcript(VerticalScroll, can_focus=False):
    """The newest exchange is shown as panes, or, in the other view, as the record all others are."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr; scrollbar-size-vertical: 1; align: left bottom;
        & > .line { padding: 0 1; height: auto; color: $text-muted; }
        & > .line.-error { color: $text-error; }
    }
    """

    def __init__(self, *, id: str, panes: bool = True) -> None:
        super().__init__(id=id)
        self.panes = panes
        self._exchanges: list[Exchange] = []

    @property
    def messages(self) -> list[Said]:
        """What was asked and answered in this conversation, by which it can be gone through."""
        return [one.said for one in self._exchanges if one.said.start is not None]

    def exchange(self, said: Said) -> Exchange:
        return next(one for one in self._exchanges if one.said is said)

    async def cut(self, said: Said) -> None:
        """Show nothing from this exchange on."""
        first = self.exchange(said)
        del self._exchanges[self._exchanges.index(first) :]
        with self.app.batch_update():
            await self.remove_children(self.children[self.children.index(first) :])

    @property
    def newest(self) -> Exchange | None:
        return self._exchanges[-1] if self._exchanges else None

    async def begin(self, said: Said) -> Exchange:
        """Show a new exchange; the one before becomes a record."""
        # Not at the top: Markdown and the events are not needed for the empty screen.
        from tui.widgets.exchange import Exchange

        if self.newest is not None:
            await self.newest.show_as(panes=False)
        exchange = Exchange(said, panes=self.panes)
        self._exchanges.append(exchange)
        await self.mount(exchange)
        self._fit()
        self.anchor()
        return exchange

    async def recall(self, exchanges: list[Said]) -> None:
        """Show what was said before this program started."""
        from tui.widgets.exchange import Exchange

        made = [Exchange(said, panes=False) for said in exchanges]
        self._exchanges += made
        await self.mount(*made)

    async def clear(self) -> None:
        """Show nothing of it any more."""
        self._exchanges.clear()
        await self.remove_children()

    async def switch(self) -> None:
        """Panes become the record, the record panes."""
        self.panes = not self.panes
        if self.newest is not None:
            await self.newest.show_as(panes=self.panes)
            self._fit()
            self.anchor()

    def fold(self) -> None:
        """Open all reasoning and results, or fold all again."""
        from tui.widgets.call import Call
        from tui.widgets.thought import Thought

        folding = [*self.query(Thought), *self.query(Call)]
        opening = not any(widget.open for widget in folding)
        for widget in folding:
            widget.open = opening

    def say(self, text: str, *, error: bool = False) -> None:
        """A line of the program itself."""
        self.mount(Static(Content(text), classes="line -error" if error else "line"))

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        if self.newest is not None:
            self.call_after_refresh(self.newest.fit, self.size.height)
