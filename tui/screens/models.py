"""The screen of models: configured, found on this machine, or for download; and which one runs."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from textual.content import Content
from textual.widgets.option_list import Option

from agent.engine.placement.planner import format_bytes
from agent.errors import AgentError
from agent.models.download_process import Download
from agent.models.listing import ModelRow
from tui.keymap import bind_fixed
from tui.screens.list_screen import ListScreen
from tui.util.format import display_text

POLL_SECONDS = 0.5
ModelAction = tuple[Literal["run", "pull", "cancel", "default"], str]


class ModelsScreen(ListScreen[ModelAction]):
    """Lists the models; its result is the model to run, other actions leave it open."""

    HEADING = "Models"
    KEY_HINT = "Enter use or download · Ctrl-D set default · Ctrl-X stop download · Esc back"
    BINDINGS = bind_fixed({"ctrl+d": "default", "ctrl+x": "cancel"}, priority=True)

    def __init__(
        self,
        rows: Sequence[ModelRow],
        list_models: Callable[[], Sequence[ModelRow]],
        downloads: Mapping[str, Download],
        running_model: str,
        on_action: Callable[[ModelAction], None],
        describe: Callable[[ModelRow], Sequence[tuple[str, str]]] = lambda row: (),
    ) -> None:
        """``on_action``: what leaves it open. ``describe``: in a thread; may raise AgentError."""
        super().__init__()
        self._list_models, self._downloads = list_models, downloads
        self._running_model, self._on_action = running_model, on_action
        self._rows = {row.name: row for row in rows}
        self._states: Mapping[str, str] = {}
        self._describe = describe
        self._facts: dict[ModelRow, Sequence[tuple[str, str]]] = {}
        """Results of ``describe``; empty while it runs."""

    def on_mount(self) -> None:
        self.set_interval(POLL_SECONDS, self._poll_downloads)

    def _poll_downloads(self) -> None:
        """Show the progress of downloads, and list the models again when one begins or ends."""
        states = {name: download.state for name, download in self._downloads.items()}
        if states != self._states:
            self._states = states
            self.run_worker(self._list_again())
        elif "running" in states.values():
            self.refresh_rows()

    async def _list_again(self) -> None:
        self._rows = {row.name: row for row in await asyncio.to_thread(self._list_models)}
        self.refresh_rows()

    def make_rows(self, search: str) -> Sequence[Option]:
        return [
            Option(self._label(row), name)
            for name, row in self._rows.items()
            if search.lower() in f"{name} {row.description} {row.source}".lower()
        ]

    def _label(self, row: ModelRow) -> Content:
        words = ["runs now"] if row.name == self._running_model else []
        words += ["default"] if row.default else []
        if (download := self._running_download(row.name)) is not None:
            words.append(format_progress(download))
        else:
            words.append(row.state)
            words += [format_bytes(row.size)] if row.size else []
        name = Content(display_text(row.name))
        if row.name == self._running_model:
            name = name.stylize("bold $accent")
        return Content.assemble(name, "\n", (" · ".join(words), "$text-muted"))

    def _running_download(self, name: str) -> Download | None:
        download = self._downloads.get(name)
        return download if download and download.state == "running" else None

    def row_details(self, row_id: str, search: str) -> Content:
        row = self._rows[row_id]
        lines = [Content(display_text(row.description))]
        if row.aliases:
            lines.append(Content(f"also called {', '.join(row.aliases)}"))
        if row.path:
            lines.append(Content(display_text(row.path)).stylize("$text-muted"))
        if facts := self._facts.get(row):
            rows = [((f"{label:13} ", "$text-muted"), display_text(text)) for label, text in facts]
            lines.append(Content("\n").join(Content.assemble(*row) for row in rows))
        lines.append(Content(self._action_text(row)))
        return Content("\n\n").join(line for line in lines if line)

    def show_details(self) -> None:
        """Show the details of the highlighted model; what is in its file follows once it is read."""
        super().show_details()
        row = self._rows.get(self.highlighted_id or "")
        if row is not None and row not in self._facts:
            self._facts[row] = ()
            self.run_worker(self._read_facts(row))

    async def _read_facts(self, row: ModelRow) -> None:
        try:
            self._facts[row] = await asyncio.to_thread(self._describe, row)
        except (AgentError, OSError) as error:
            self._facts[row] = [("File", str(error))]
        if self.has_widgets and row.name == self.highlighted_id:
            super().show_details()

    def _action_text(self, row: ModelRow) -> str:
        download = self._downloads.get(row.name)
        if self._running_download(row.name):
            return "Downloading in the background; Ctrl-X stops it."
        if row.name == self._running_model:
            return "This model is in use."
        if row.runnable:
            return "Enter switches to it."
        if row.source != "hub":
            return ""
        match download.state if download else "":
            case "cancelled":
                return "The download was stopped; Enter resumes it."
            case "failed" if download:
                return f"{display_text(download.error)} Enter tries again."
            case _:
                return "Enter downloads it from Hugging Face, in the background."

    def choose_row(self, row_id: str) -> None:
        row = self._rows[row_id]
        if self._running_download(row_id) is not None or row_id == self._running_model:
            return
        if row.runnable:
            self.dismiss(("run", row_id))
        elif row.source == "hub":
            self._on_action(("pull", row_id))
            self._poll_downloads()

    def action_cancel(self) -> None:
        if (row_id := self.highlighted_id) is not None:
            self._on_action(("cancel", row_id))
            self._poll_downloads()

    def action_default(self) -> None:
        row = self._rows.get(self.highlighted_id or "")
        if row is not None and row.runnable:
            self._on_action(("default", row.name))
            self.run_worker(self._list_again())


def format_progress(download: Download) -> str:
    """Format a download's progress: ``37 % · 4.4 of 12.1 GB``."""
    if not download.total:
        return "asking for it"
    share = 100 * download.done // download.total
    unit, size = ("GB", 1e9) if download.total >= 1e9 else ("MB", 1e6)
    return f"{share} % · {download.done / size:.1f} of {download.total / size:.1f} {unit}"
