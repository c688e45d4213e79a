"""An MCP server's elicitation: a form to fill in, or a page to visit (MCP 2025-11-25, elicitation)."""

from typing import Any, ClassVar, Literal

from rich.segment import Segment
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Button, Checkbox, Input, Label, Select, SelectionList, Static
from textual.widgets.selection_list import Selection

from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
from tools.mcp.forms import Form, FormError, FormField, page_host
from tui.util.format import display_text
from tui.widgets.card_layout import Card

FieldWidget = Input | Select[Any] | Checkbox | SelectionList[int]


class ElicitationForm(Card[ElicitationResult]):
    """Asks what a server wants to know; where rows are short, the question and its fields scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send", "Send", priority=True),
        Binding("ctrl+d", "decline", "Decline", priority=True),
        Binding("up", "scroll('up')", show=False),
        Binding("down", "scroll('down')", show=False),
        Binding("pageup", "scroll('page_up')", show=False),
        Binding("pagedown", "scroll('page_down')", show=False),
    ]
    DEFAULT_CSS = """
    ElicitationForm {
        & Label { width: 100%; color: $text-muted; }
        & .url { color: $text-primary; }
        & > .fields { height: auto; }
        & > .problem { max-height: 4; color: $text-error; display: none; }
        & > Horizontal { height: 1; }
        & Button { margin-right: 2; &:focus { text-style: bold underline !important; } }
        & SelectionList {
            height: auto; max-height: 6; padding: 0; border: none; background: $background;
            &:focus { border: none; background-tint: $background 0%; }
            &:blur > .option-list--option-highlighted { background: $background; }
        }
    }
    """

    def __init__(self, elicitation: ElicitationRequest) -> None:
        super().__init__()
        self.border_title = Content(f"{display_text(elicitation.server)} asks")
        self._elicitation = elicitation
        self._form = Form.from_schema(elicitation.schema)
        if elicitation.url is None and self._form.fields and not self._form.needs_input:
            self.border_subtitle = "Ctrl-S sends the defaults"
        self._widgets: dict[str, FieldWidget] = {}

    def compose(self) -> ComposeResult:
        question = self._elicitation
        with VerticalScroll(classes="fields"):
            yield Static(display_text(question.message), markup=False)
            if question.url is not None:
                yield Static(display_text(question.url), classes="url", markup=False)
                host = display_text(page_host(question.url) or "?")
                yield Label(f"A page of {host}", markup=False)
            for field in self._form.fields:
                widget = self._widgets[field.name] = _field_widget(field)
                if not isinstance(widget, Checkbox):
                    yield Label(_label(field), markup=False)
                yield widget
        yield Static(classes="problem", markup=False)
        with Horizontal():
            label = "Send (Ctrl-S)" if question.url is None else "Open it (Ctrl-S)"
            yield Button(label, id="send", variant="primary", compact=True)
            if question.url is not None:
                yield Button("I'll open it myself", id="accept", compact=True)
            yield Button("Decline (Ctrl-D)", id="decline", compact=True)

    def enter(self) -> None:
        first: Widget = next(iter(self._widgets.values()), None) or self.query_one("#send")
        first.focus(scroll_visible=False)
        self.call_after_refresh(self._show_question, first)

    def _show_question(self, first: Widget) -> None:
        """Scroll to the question, or as far as the first field; before the layout, rows are unknown."""
        self.query_one(".fields", VerticalScroll).scroll_home(animate=False)
        first.scroll_visible(animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.input is list(self._widgets.values())[-1]:
            self.action_send()
        else:
            self.screen.focus_next()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "decline":
            self.action_decline()
        elif event.button.id == "accept":
            self.decide(ElicitationResult("accept"))
        else:
            self.action_send()

    def action_scroll(self, direction: Literal["up", "down", "page_up", "page_down"]) -> None:
        getattr(self.query_one(".fields"), f"scroll_{direction}")(animate=False)

    def action_decline(self) -> None:
        self.decide(ElicitationResult("decline"))

    def action_send(self) -> None:
        """Send the values if they fit, or open the page; after what was typed into a field before."""
        (self.screen.focused or self).call_later(self._send)

    def _send(self) -> None:
        if self._decided.done():
            return
        if self._elicitation.url is not None:
            self.app.open_url(self._elicitation.url)
            self.decide(ElicitationResult("accept"))
            return
        try:
            content: dict[str, Any] = {}
            for field in self._form.fields:
                content |= _field_content(field, self._widgets[field.name])
            self._form.check(content)
        except FormError as error:
            label = self.query_one(".problem", Static)
            label.update(display_text(str(error)))
            label.display = True
            widget = self._widgets[error.field_name].focus()
            self.call_after_refresh(widget.scroll_visible, animate=False)
        else:
            self.decide(ElicitationResult("accept", content))


def _label(field: FormField) -> str:
    title = f"{field.title} *" if field.required else field.title
    rule = f"({field.rule})" if field.rule else ""
    text = f"{title}: {field.description}" if field.description else title
    return display_text(f"{text} {rule}".strip())


def _field_widget(field: FormField) -> FieldWidget:
    default = field.default
    match field.kind:
        case "boolean":
            return MarkedCheckbox(Content(_label(field)), default is True, compact=True)
        case "choice":
            # Texts of Rich: strings would be read as markup, and Select's search passes over Content.
            titles = [(Text(display_text(title)), n) for n, (title, _) in enumerate(field.choices)]
            values = [value for _, value in field.choices]
            chosen = values.index(default) if default is not None and default in values else None
            return Select(titles, value=Select.NULL if chosen is None else chosen, compact=True)
        case "choices":
            options = [
                Selection(Content(display_text(title)), number, value in (default or ()))
                for number, (title, value) in enumerate(field.choices)
            ]
            return MarkedList(*options, compact=True)
    return Input(_default_text(field), compact=True)


def _default_text(field: FormField) -> str:
    default = field.default
    if default is None:
        return ""
    is_line = isinstance(default, str) and default.isprintable()
    return default if is_line else field.describe(default)


def _field_content(field: FormField, widget: FieldWidget) -> dict[str, Any]:
    match widget:
        case Checkbox():
            return field.filled(widget.value)
        case Select(value=int(number)):
            return field.filled(field.choices[number][1])
        case SelectionList():
            chosen = [value for n, (_, value) in enumerate(field.choices) if n in widget.selected]
            return field.filled(chosen) if chosen or field.required else {}
        case Input(value=text) if text:
            # The default's line breaks too, which an input cannot show.
            is_default = text == _default_text(field)
            return field.filled(field.default if is_default else field.parse(text))
    return field.blank


class MarkedCheckbox(Checkbox):
    """A checkbox whose mark is seen without colours too."""

    def render(self) -> Content:
        self.BUTTON_INNER = "X" if self.value else " "
        return super().render()


class MarkedList(SelectionList[int]):
    """A list of checkboxes whose marks are seen without colours too."""

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        number = self.scroll_offset.y + y
        if number >= self.option_count:
            return strip
        left, mark, *rest = strip
        is_chosen = self.get_option_at_index(number).value in self.selected
        return Strip([left, Segment("X" if is_chosen else " ", mark.style), *rest])
