"""The four live panes of one exchange: reasoning, arguments, results, answer."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.geometry import Size
from textual.reactive import Reactive

from tui.markdown.highlight import arguments
from tui.state.item_view import Part, duration
from tui.state.turn_view import Said
from tui.util.format import count, seconds
from tui.widgets.assistant_message import Message
from tui.widgets.pane import Pane
from tui.widgets.steering_message import Interjection
from tui.widgets.text_stream import Stream

ASKED = "shown in the question below"


class Answer(VerticalScroll):
    """The messages of a turn, followed at their end unless the person scrolled away."""

    DEFAULT_CSS = """
    Answer { scrollbar-size-vertical: 1; }
    """
    virtual_size = Reactive(Size(0, 0), repaint=False)
    """As a message's."""

    def follow(self) -> None:
        """Stay at the end, once there is more than fits."""
        if self.max_scroll_y and not self.is_anchored:
            self.anchor()


class Panes(Grid):
    DEFAULT_CSS = """
    Panes {
        grid-size: 2 2; grid-columns: 3fr 2fr; grid-rows: 2fr 3fr; grid-gutter: 0 1;
    }
    """

    def __init__(self, said: Said) -> None:
        super().__init__()
        self.said = said
        self._reasoning, self._arguments, self._results = Stream(), Stream(), Stream()
        self._answer = Answer()
        self._panes = {
            name: Pane(name.capitalize(), content, id=name)
            for name, content in (
                ("reasoning", self._reasoning),
                ("arguments", self._arguments),
                ("answer", self._answer),
                ("results", self._results),
            )
        }
        self._messages: dict[Part, Message | Interjection] = {}
        self._shown: dict[Part, int] = {}
        self._marks: dict[tuple[Part, Stream], int] = {}
        self._finished: set[Part] = set()
        self._shown_output = 0
        self._latest: Part | None = None
        """The call whose arguments stand last."""
        self._asked = False
        """In their place stands that the person is asked."""
        self._ready = False

    def compose(self) -> ComposeResult:
        yield from self._panes.values()

    def on_mount(self) -> None:
        self._ready = True
        self.follow()

    def follow(self) -> None:
        """Show what came since the last call."""
        if not self._ready:
            return
        for part in self.said.parts:
            if part in self._finished:
                continue
            match part.kind:
                case "reasoning":
                    self._reason(part)
                case "call":
                    self._call(part)
                case _:
                    self._say(part)
            if part.settled:
                self._finished.add(part)
        self._heads()

    def _reason(self, part: Part) -> None:
        if part not in self._shown and self._reasoning.text:
            self._reasoning.line("")
        self._grow(part, self._reasoning)

    def _grow(self, part: Part, stream: Stream) -> None:
        seen = self._shown.get(part, 0)
        new = part.text.after(seen)
        if not seen and not new and part.settled:
            new = part.whole or ""  # of the store: it never streamed
        stream.write(new)
        self._shown[part] = len(part.text)

    def _call(self, part: Part) -> None:
        if part not in self._shown:
            self._arguments.line(part.title, "head")
            self._marks[part, self._arguments] = self._arguments.mark()
            self._latest, self._asked = part, False
        if part.whole is None:
            self._grow(part, self._arguments)
            return
        if (part, self._results) not in self._marks:
            self._shown[part] = len(part.text)
            self._show_arguments(part, part.whole, asked=False)
            self._results.line(part.title, "head")
            self._marks[part, self._results] = self._results.mark()
            self._shown_output = 0
        if part is self._latest and self._asked != part.asked:
            self._asked = part.asked
            self._show_arguments(part, part.whole, asked=self._asked)
        self._result(part)

    def _show_arguments(self, part: Part, whole: str, *, asked: bool) -> None:
        """Those that are asked about stand in the question."""
        self._arguments.cut(self._marks[part, self._arguments])
        if asked:
            self._arguments.line(ASKED, "faint")
        else:
            self._arguments.lines(arguments(whole, part.title))

    def _result(self, part: Part) -> None:
        mark = self._marks[part, self._results]
        if part.result is None:
            self._results.write(part.output.after(self._shown_output), "faint")
            self._shown_output = len(part.output)
            return
        self._results.cut(mark)
        failed = part.state == "failed"
        self._results.line(part.result or "(no output)", "error" if failed else "")

    def _say(self, part: Part) -> None:
        if part not in self._messages:
            made = Interjection(part) if part.kind == "interjection" else Message(part)
            self._messages[part] = made
            self._answer.mount(made)
        self._messages[part].follow()
        self._answer.follow()

    def _heads(self) -> None:
        said = self.said
        last = said.parts[-1] if said.parts and said.running else None
        live = last if last and not last.settled else None
        calls = [part for part in said.parts if part.kind == "call"]
        call = calls[-1] if calls else None
        running = call is not None and call.state in ("running", "waiting") and said.running
        spent = sum(
            (p.ended or said.clock()) - p.began for p in said.parts if p.kind == "reasoning"
        )
        thought = sum(part.tokens or 0 for part in said.parts)
        words = [
            seconds(spent) if spent >= 0.05 else "", f"{count(thought)} tokens" if thought else "",
        ]  # fmt: skip
        self._head(
            "reasoning",
            " · ".join(filter(None, words)),
            live is not None and live.kind == "reasoning",
        )
        writing = live is not None and live.kind == "call" and live.state == "writing"
        self._head("arguments", f"{len(calls)} calls" if len(calls) > 1 else "", writing)
        state = ""
        if call is not None:
            match call.state:
                case "waiting":
                    state = "waits for you"
                case "running":
                    state = call.progress or "running"
                case "failed":
                    state = "failed"
                case "done":
                    state = duration(call)
        self._head("results", state, running)
        self._head("answer", "", live is not None and live.kind in ("answer", "commentary"))

    def _head(self, pane: str, state: str, active: bool) -> None:
        self._panes[pane].head(state, active=active)
