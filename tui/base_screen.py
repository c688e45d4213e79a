"""The main screen, which resolves and caches the Rich styles of texts for all widgets on it."""

from typing import ClassVar

from rich.style import Style
from textual.signal import Signal

from tui.guarded import GuardedScreen

TEXT_STYLES = (
    "head", "faint", "error", "keyword", "name", "string", "number", "comment", "added", "removed",
    "mark", "odd", "repair", "cursor", "cursor-blurred", "chance1", "chance2", "chance3",
    "chance4",
)  # fmt: skip
"""Kinds of plain text; the theme styles each as component class ``stream--KIND``."""
MARKDOWN_STYLES = (
    "heading", "code", "block", "quote", "rule", "link", "keyword", "string", "number", "comment",
    "function",
)  # fmt: skip
"""Kinds of Markdown text; the theme styles each as component class ``message--KIND``."""


class BaseScreen(GuardedScreen[None]):
    """Caches the styles of its component classes, which Textual would resolve again for each of
    hundreds of widgets at every change of style."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"stream--{kind}" for kind in TEXT_STYLES),
        *(f"message--{kind}" for kind in MARKDOWN_STYLES),
    }  # fmt: skip

    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-short"),
        (12, "-low"),
        (24, "-high"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._styles_by_class: dict[str, Style] = {}
        self.resumed: Signal[None] = Signal(self, "resumed")
        """Published when the screens above are closed: Textual 8.2 gives the callbacks of
        ``call_after_refresh`` to the screen on top, and drops those that are left when it is closed:
        subscribers schedule theirs again."""

    def on_screen_resume(self) -> None:
        self.resumed.publish(None)

    def style_of(self, name: str) -> Style:
        """The style of a component class, as far as it differs from the text around it."""
        if name not in self._styles_by_class:
            style = self.get_component_rich_style(name, partial=True)
            if style.color is not None:
                # A partial style has no background: a colour chosen to contrast with it (``auto``)
                # would come out as pure white.
                style += Style(color=self.get_component_rich_style(name).color)
            self._styles_by_class[name] = style
        return self._styles_by_class[name]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles_by_class.clear()
