"""An MCP server's elicitation: a form to fill in, or a page to visit (MCP 2025-11-25, elicitation)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Checkbox, Input, Label, Select, Static

from tui.util.format import display_text

if TYPE_CHECKING:
    from tools.mcp.client_requests import ElicitationRequest, ElicitationResult

FieldWidget = Input | Select[str] | Checkbox


class ElicitationForm(VerticalScroll):
    """Asks the person what a server wants to know; mounted while ``answer`` waits."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+d", "decline", "Decline", priority=True)]
    DEFAULT_CSS = """
    ElicitationForm {
        dock: bottom; height: auto; max-height: 100%; padding: 0 1; border: round $warning;
        border-title-color: $text-warning;
        & Label { color: $text-muted; }
        & .problem { color: $text-error; display: none; }
        & > Horizontal { height: 1; }
        & Button { margin-right: 2; &:focus { text-style: bold underline !important; } }
    }
    """

    def __init__(self, elicitation: ElicitationRequest) -> None:
        super().__init__()
        self.border_title = Content(f"{display_text(elicitation.server)} asks")
        self._elicitation = elicitation
        self._fields: dict[str, FieldWidget] = {}
        self._decided: asyncio.Future[ElicitationResult] = (
            asyncio.get_running_loop().create_future()
        )

    def compose(self) -> ComposeResult:
        question = self._elicitation
        yield Static(display_text(question.message), markup=False)
        if question.url is not None:
            yield Static(display_text(question.url), classes="url", markup=False)
        else:
            schema = question.schema or {}
            required = schema.get("required", ())
            for name, field in schema.get("properties", {}).items():
                title = display_text(str(field.get("title") or name)) + (
                    " *" if name in required else ""
                )
                if hint := field.get("description"):
                    title += f": {display_text(str(hint))}"
                widget = self._fields[name] = _field_widget(field, title)
                if not isinstance(widget, Checkbox):
                    yield Label(title, markup=False)
                yield widget
        yield Static(classes="problem", markup=False)
        with Horizontal():
            yield Button(
                "Open it" if question.url else "Send", id="send", variant="primary", compact=True
            )
            yield Button("Decline (Ctrl-D)", id="decline", compact=True)

    def enter(self) -> None:
        """Move the focus to the first field."""
        first = next(iter(self._fields.values()), None) or self.query_one("#send")
        first.focus()

    async def answer(self) -> ElicitationResult:
        """Wait until the form is sent or declined."""
        return await self._decided

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go on to the next field; from the last one, send."""
        event.stop()
        if event.input is list(self._fields.values())[-1]:
            self._send()
        else:
            self.screen.focus_next()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "decline":
            self.action_decline()
        else:
            self._send()

    def action_decline(self) -> None:
        """Decline to answer."""
        self._decide("decline")

    def _send(self) -> None:
        if self._elicitation.url is not None:
            self.app.open_url(self._elicitation.url)
            self._decide("accept")
            return
        from agent.util.json_schema import find_violation

        content = {
            name: value
            for name, field in self._fields.items()
            if (value := _field_value(field)) is not None
        }
        if wrong := find_violation(self._elicitation.schema or {}, content):
            label = self.query_one(".problem", Static)
            label.update(display_text(wrong))
            label.display = True
            self.scroll_end(animate=False)
        else:
            self._decide("accept", content)

    def _decide(self, action: Any, content: dict[str, Any] | None = None) -> None:
        from tools.mcp.client_requests import ElicitationResult

        if not self._decided.done():
            self._decided.set_result(ElicitationResult(action, content))


def _field_widget(schema: dict[str, Any], title: str) -> FieldWidget:
    """Make the widget for one property of the form's flat schema."""
    default = schema.get("default")
    match schema.get("type"):
        case "boolean":
            return Checkbox(Content(title), default is True, compact=True)
        case "integer":
            return Input("" if default is None else str(default), type="integer", compact=True)
        case "number":
            return Input("" if default is None else str(default), type="number", compact=True)
    choices = _enum_choices(schema)
    if choices:
        known = default if default in [value for _, value in choices] else Select.NULL
        return Select(choices, value=known, compact=True)
    return Input("" if default is None else str(default), compact=True)


def _enum_choices(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Return title and value of each choice of an enumeration, in any form that MCP has had."""
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        choices = [(c.get("title", c["const"]), c["const"]) for c in titled if "const" in c]
    else:
        values = schema.get("enum") or ()
        choices = list(zip(schema.get("enumNames") or values, values, strict=False))
    return [(display_text(str(title)), str(value)) for title, value in choices]


def _field_value(field: FieldWidget) -> object:
    """Return what was filled in, in the type of the property; None where nothing was."""
    match field:
        case Checkbox():
            return field.value
        case Select():
            return None if field.is_blank() else field.value
        case Input(type="integer", value=text) if text:
            return int(text)
        case Input(type="number", value=text) if text:
            return float(text)
    return field.value or None
