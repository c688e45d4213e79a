"""The card of a tool call that waits for the person's approval."""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from agent.events import AgentApprovalRequested
from tools.types import Answer, Tool
from tui.markdown.highlight import format_arguments, format_preview
from tui.util.format import display_text
from tui.widgets.card_layout import Card
from tui.widgets.text_stream import TextStream

Choice = Literal["once", "session", "always", "no"]
ANSWERS: dict[str, tuple[Choice, str]] = {
    "y": ("once", "Allow once"),
    "a": ("session", "Allow in this session"),
    "A": ("always", "Always allow in this folder"),
    "n": ("no", "Deny"),
}
"""By shortcut: the choice, and how the list names it."""
ANSWER_HINT = "↑ ↓ Enter or a letter · Esc stops the turn"
REASON_KEY = "r"
REASON_LABEL = "Deny and say why …"
REASON_HINT = "Enter denies with this reason · Esc back"
SHORTCUT_SECONDS = 0.3
"""Time without another key after which a letter is a shortcut: before, it may begin a word."""


def _change_text(request: AgentApprovalRequested) -> str | None:
    """The tool's preview, behind the changes in its definition; None: the arguments are shown."""
    if not request.diff:
        return request.preview
    call = request.preview or request.arguments
    return "\n\n".join(filter(None, (request.reason, request.diff, call)))


def _question_note(request: AgentApprovalRequested) -> Content:
    """Why the call asks, if its tool does not always, and the rules that an answer would store."""
    from tools.policy.approvals import ASK_REASON

    usual = not request.reason or request.reason == ASK_REASON or request.diff
    rules = request.rules
    if rules is None:
        rules = [f"{request.server}.{request.tool} with any arguments"]
    covered = rules[0] if len(rules) == 1 else "".join(f"\n  {rule}" for rule in rules)
    lines = [
        Content("" if usual else display_text(request.reason)).stylize("$text-warning"),
        Content(f"a and A allow from now on: {display_text(covered)}" if covered else ""),
    ]
    return Content("\n").join(filter(None, lines))


class _Call(Vertical):
    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        # Without a height of the container, Textual honours a max-height in rows only.
        return self.arrange(Size(width, viewport.height)).total_region.height


class ApprovalCard(Card[Answer]):
    """Asks whether a call may run. Enter takes the highlighted answer; letters are shortcuts, but what
    reads like the beginning of a word goes into the prompt."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", show=False),
        Binding("pageup", "scroll_arguments('page_up')", show=False, priority=True),
        Binding("pagedown", "scroll_arguments('page_down')", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    ApprovalCard {
        & > .call {
            height: auto; overflow-y: auto; scrollbar-size-vertical: 0;
            & > TextStream { max-height: 30vh; }
            & > .note { height: auto; color: $text-muted; }
        }
        & > .hint { height: auto; color: $text-muted; }
        & > Input { height: auto; padding: 0; border: none; background: $panel; }
        & > Input:focus { border: none; }
        & > OptionList {
            height: auto; padding: 0; border: none; background: $background; color: $text-muted;
            text-wrap: nowrap; text-overflow: ellipsis; scrollbar-size-vertical: 1;
            & > .option-list--option-highlighted { background: $background; color: $text-muted; }
            &:focus { border: none; background-tint: $background 0%; color: $foreground; }
            &:focus > .option-list--option-highlighted {
                background: $panel; color: $text-warning; text-style: bold;
            }
        }
        &:focus-within { border: heavy $warning; }
    }
    """

    def __init__(
        self,
        tool: Tool,
        arguments: str,
        request: AgentApprovalRequested | None,
        type_into_prompt: Callable[[str], None],
    ) -> None:
        """``request``: in the turn's log. ``type_into_prompt``: gets text that was not an answer."""
        name = f"{tool.server} · {tool.name}"
        if change := request and _change_text(request):
            runs = format_preview(change, name)
        else:
            runs = format_arguments(display_text(arguments), name)
        self._stream = TextStream(grows=True, follows=False)
        self._stream.write_runs(runs)
        note = _question_note(request) if request else ""
        self._note = Static(note, classes="note")
        self._note.display = bool(note)
        self._call = _Call(self._stream, self._note, classes="call")
        self._labels = {
            key: label
            for key, (choice, label) in ANSWERS.items()
            if request is None or request.rules != [] or choice not in ("session", "always")
        } | {REASON_KEY: REASON_LABEL}
        self._choices = OptionList(
            *(
                Option(Content.assemble((key, "bold"), f"  {label}"), id=key)
                for key, label in self._labels.items()
            )
        )
        super().__init__(self._call, self._choices)
        self.border_title = Content(display_text(f"Allow {tool.server}.{tool.name}?"))
        self._type_into_prompt = type_into_prompt
        self._shortcut: tuple[str, Timer] | None = None
        """A letter that was pressed just now, and the timer after which it decides."""

    def on_mount(self) -> None:
        self._stream.can_focus = False
        self._choices.highlighted = 0
        self.screen.screen_layout_refresh_signal.subscribe(self, self._on_layout)

    def _on_layout(self, screen: object) -> None:
        self._update_hint()
        self._choices.scroll_to_highlight()

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _update_hint(self) -> None:
        more = self._stream.max_scroll_y + self._call.max_scroll_y
        scroll = f"{more} more lines: PgUp PgDn" if more else ""
        keys = ANSWER_HINT if self.has_focus_within else "Tab to answer"
        hint = " · ".join(filter(None, (scroll, "" if self.query(Input) else keys)))
        if hint != self.border_subtitle:  # a layout may follow, and calls this again
            self.border_subtitle = hint

    def enter(self) -> None:
        target = self.query("Input").first() if self.query("Input") else self._choices
        target.focus()

    def on_key(self, event: events.Key) -> None:
        """Take a letter as a shortcut, unless another key follows at once: that is text."""
        if isinstance(self.screen.focused, Input):
            return
        before = self._take_shortcut()
        if not event.is_printable or event.character is None:
            return  # also a letter before it decides nothing then
        event.stop()
        if before or event.character not in self._labels:
            self._type_into_prompt(before + event.character)
        else:
            key = event.character
            self._choices.highlighted = list(self._labels).index(key)
            self._shortcut = (key, self.set_timer(SHORTCUT_SECONDS, partial(self._choose, key)))

    def _take_shortcut(self) -> str:
        """Stop the letter that would decide; return it."""
        if self._shortcut is None:
            return ""
        key, timer = self._shortcut
        timer.stop()
        self._shortcut = None
        return key

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option_id or "")

    def _choose(self, key: str) -> None:
        self._shortcut = None
        if key != REASON_KEY:
            self.decide(Answer(ANSWERS[key][0]))
        elif not self.query(Input):
            reason = Input(placeholder="Why not? The model reads it.")
            self.mount(reason, Static(REASON_HINT, classes="hint"), before=self._choices)
            self._choices.display = False
            reason.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave Esc to the app, which stops the turn, unless a reason is being written."""
        return action != "back" or bool(self.query(Input))

    async def action_back(self) -> None:
        await self.query("Input, .hint").remove()
        self._choices.display = True
        self._choices.focus()

    def action_scroll_arguments(self, direction: Literal["page_up", "page_down"]) -> None:
        """Scroll the arguments; at their end, what is around them: it may be cut, too."""
        stream = self._stream
        at_end = stream.scroll_y <= 0 if direction == "page_up" else stream.is_vertical_scroll_end
        getattr(self._call if at_end else stream, f"scroll_{direction}")(animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.decide(Answer("no", event.value.strip()))
