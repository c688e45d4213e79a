"""The models: what is known, found on this machine, or can be downloaded; which one runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from textual.binding import Binding, BindingType
from textual.content import Content

from tui.screens.list_screen import Room, Row
from tui.util.format import shown

if TYPE_CHECKING:
    from agent.cli.models import Row as Listed
    from agent.models.download_process import Download

FOLLOW = 0.5
"""Seconds between two looks at a download."""
Wish = tuple[Literal["run", "pull", "cancel", "default"], str]


class Models(Room[Wish]):
    """Its result: what to do, and with which model."""

    NAME = "Models"
    KEYS = "Enter runs or pulls · Ctrl-D the default · Ctrl-X stops a pull · Esc goes back"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+d", "default", show=False, priority=True),
        Binding("ctrl+x", "cancel", show=False, priority=True),
    ]

    def __init__(
        self,
        rows: Sequence[Listed],
        listed: Callable[[], Sequence[Listed]],
        downloads: Mapping[str, Download],
        running: str,
        act: Callable[[Wish], None],
    ) -> None:
        """``rows``: what ``listed`` gave before; ``running``: the name of the model in use; ``act``:
        what is done without leaving."""
        super().__init__()
        self._listed, self._downloads = listed, downloads
        self._model, self._act = running, act
        self._rows = {row.name: row for row in rows}
        self._states: Mapping[str, str] = {}

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(FOLLOW, self._follow)

    def _follow(self) -> None:
        """How far the downloads are."""
        states = {name: one.state for name, one in self._downloads.items()}
        if states != self._states:
            self._states = states
            self._rows = {row.name: row for row in self._listed()}
            self.fill()
        elif "running" in states.values():
            self.fill()

    def rows(self, search: str) -> Sequence[Row]:
        return [
            Row(name, self._label(row))
            for name, row in self._rows.items()
            if search.lower() in f"{name} {row.description} {row.source}".lower()
        ]

    def _label(self, row: Listed) -> Content:
        from agent.engine.placement.planner import gigabytes

        words = ["runs now"] if row.name == self._model else []
        words += ["default"] if row.default else []
        if (download := self._download(row.name)) is not None:
            words.append(progress(download))
        else:
            words.append(row.where)
            words += [gigabytes(row.size)] if row.size else []
        name = Content(shown(row.name))
        if row.name == self._model:
            name = name.stylize("bold $accent")
        return Content.assemble(name, "\n", (" · ".join(words), "$text-muted"))

    def _download(self, name: str) -> Download | None:
        download = self._downloads.get(name)
        return download if download and download.state == "running" else None

    def details(self, row: str, search: str) -> Content:
        one = self._rows[row]
        lines = [shown(one.description)]
        if one.aliases:
            lines.append(f"also called {', '.join(one.aliases)}")
        if one.path:
            lines.append(shown(one.path))
        lines.append(self._next(one))
        return Content("\n\n".join(filter(None, lines)))

    def _next(self, row: Listed) -> str:
        """What Enter would do."""
        download = self._downloads.get(row.name)
        if self._download(row.name):
            return "It is being downloaded; you can go on meanwhile. Ctrl-X stops it."
        if row.name == self._model:
            return "This is the model that answers."
        if row.usable:
            return "Enter: it answers from now on."
        if row.source != "hub":
            return ""
        match download.state if download else "":
            case "cancelled":
                return "The download was stopped. What has come is kept; Enter goes on with it."
            case "failed" if download:
                return f"{shown(download.error)} Enter begins it again."
            case _:
                return "Enter downloads it from Hugging Face, in the background."

    def choose(self, row: str) -> None:
        one = self._rows[row]
        if self._download(row) is not None or row == self._model:
            return
        if one.usable:
            self.dismiss(("run", row))
        elif one.source == "hub":
            self._act(("pull", row))
            self._follow()

    def action_cancel(self) -> None:
        if (row := self.chosen) is not None:
            self._act(("cancel", row))
            self._follow()

    def action_default(self) -> None:
        row = self._rows.get(self.chosen or "")
        if row is not None and row.usable:
            self._act(("default", row.name))
            self._rows = {one.name: one for one in self._listed()}
            self.fill()


def progress(download: Download) -> str:
    """37 % · 4.4 of 12.1 GB"""
    if not download.total:
        return "asking for it"
    share = 100 * download.done // download.total
    unit, size = ("GB", 1e9) if download.total >= 1e9 else ("MB", 1e6)
    return f"{share} % · {download.done / size:.1f} of {download.total / size:.1f} {unit}"
