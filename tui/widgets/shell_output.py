"""A shell command of the person's in the transcript: the command, its output, how it ended."""

from collections.abc import Iterator

from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from agent.conversation.attachments import split_attachments
from tui.keymap import KeymapApp
from tui.state.shell_run import ShellRun
from tui.util.format import display_text
from tui.widgets.notice import NoticeEntries
from tui.widgets.text_stream import TextStream
from tui.widgets.virtual_scroll import Foldable

FOLDED_LINES = 10
"""Lines of output that are shown: the last while it runs, afterwards the first until it is opened."""
_DELIVERIES = {
    "waiting": "goes with the next prompt; Esc leaves it out",
    "sent": "sent with the prompt",
    "removed": "not sent",
}


class ShellOutput(Foldable, Vertical):
    """Shows one command while it runs and afterwards."""

    app: KeymapApp
    DEFAULT_CSS = """
    ShellOutput {
        height: auto; padding: 0 1; margin: 0 1 1 1; max-width: 120;
        background: $surface; border-left: outer $rule;
        &:focus-within { border-left: outer $accent; }
        & > Static { height: auto; }
        & > .outcome { color: $text-muted; }
        & > TextStream { margin-left: 2; color: $text-muted; }
    }
    """

    def __init__(self, run: ShellRun) -> None:
        title = Content.assemble(("! ", "$accent"), (display_text(run.command), "bold $text"))
        self._output = TextStream(grows=True, follows=False)
        self._outcome = Static("", classes="outcome", markup=False)
        super().__init__(Static(title, markup=False), self._output, self._outcome)
        self._run = run

    def on_mount(self) -> None:
        self.follow()

    def update_fold(self) -> None:
        self.follow()

    def follow(self) -> None:
        run = self._run
        if not self._output.is_attached:
            return
        lines = display_text(run.text).split("\n")
        hidden = 0 if self.expanded else max(0, len(lines) - FOLDED_LINES)
        visible = lines[hidden:] if run.running else lines[: len(lines) - hidden]
        self._output.truncate()
        if visible != [""]:
            self._output.write("\n".join(visible))
        if hidden and not run.running:
            key = self.app.key_bindings.label("fold")
            self._output.write_line(f"… {hidden} more lines ({key} opens)", "faint")
        ended = f"{run.outcome} · {_DELIVERIES[run.delivery]}"
        self._outcome.update(Content("running · Esc stops it" if run.running else ended))


class ShellEntries(NoticeEntries):
    """The single entry of a command in the transcript."""

    def __init__(self, run: ShellRun) -> None:
        self.run = run
        super().__init__(lambda: ShellOutput(run), 3)

    def follow(self) -> None:
        widget = self.entries[0].widget
        if isinstance(widget, ShellOutput):
            widget.follow()


def sent_commands(prompt: str) -> Iterator[ShellEntries]:
    for attachment in split_attachments(prompt)[1]:
        if attachment.kind == "command":
            yield ShellEntries(ShellRun.from_attachment(attachment))
