"""What a tool's server wants to know from the person: a form to fill in, or a page to visit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Checkbox, Input, Label, Select, Static

from tui.util.format import shown

if TYPE_CHECKING:
    from tools.mcp.client_requests import Elicitation, Elicited

Field = Input | Select[str] | Checkbox


class Question(VerticalScroll):
    """``await answer()``; shown as long as it waits."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+d", "decline", "Decline", priority=True)]
    DEFAULT_CSS = """
    Question {
        height: auto; max-height: 18; padding: 0 1; border: round $warning;
        border-title-color: $text-warning;
        & Label { color: $text-muted; }
        & .problem { color: $text-error; display: none; }
        & > Horizontal { height: 1; }
        & Button { margin-right: 2; &:focus { text-style: bold underline !important; } }
    }
    """

    def __init__(self, question: Elicitation) -> None:
        super().__init__()
        self.border_title = Content(f"{shown(question.server)} asks")
        self._question = question
        self._fields: dict[str, Field] = {}
        self._decided: asyncio.Future[Elicited] = asyncio.get_running_loop().create_future()

    def compose(self) -> ComposeResult:
        question = self._question
        yield Static(shown(question.message), markup=False)
        if question.url is not None:
            yield Static(shown(question.url), classes="url", markup=False)
        else:
            schema = question.schema or {}
            required = schema.get("required", ())
            for name, field in schema.get("properties", {}).items():
                title = shown(str(field.get("title") or name)) + (" *" if name in required else "")
                if hint := field.get("description"):
                    title += f": {shown(str(hint))}"
                widget = self._fields[name] = _field(field, title)
                if not isinstance(widget, Checkbox):
                    yield Label(title, markup=False)
                yield widget
        yield Static(classes="problem", markup=False)
        with Horizontal():
            yield Button(
                "Open it" if question.url else "Send", id="send", variant="primary", compact=True
            )
            yield Button("Decline (Ctrl-D)", id="decline", compact=True)

    def on_mount(self) -> None:
        first = next(iter(self._fields.values()), None) or self.query_one("#send")
        first.focus()

    async def answer(self) -> Elicited:
        return await self._decided

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes on, and sends from the last field."""
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
        self._decide("decline")

    def _send(self) -> None:
        if self._question.url is not None:
            self.app.open_url(self._question.url)
            self._decide("accept")
            return
        from agent.util.json_schema import problem

        content = {
            name: value
            for name, field in self._fields.items()
            if (value := _value(field)) is not None
        }
        if wrong := problem(self._question.schema or {}, content):
            told = self.query_one(".problem", Static)
            told.update(shown(wrong))
            told.display = True
            self.scroll_end(animate=False)
        else:
            self._decide("accept", content)

    def _decide(self, action: Any, content: dict[str, Any] | None = None) -> None:
        from tools.mcp.client_requests import Elicited

        if not self._decided.done():
            self._decided.set_result(Elicited(action, content))


def _field(schema: dict[str, Any], title: str) -> Field:
    """For one property of a flat form."""
    default = schema.get("default")
    match schema.get("type"):
        case "boolean":
            return Checkbox(Content(title), default is True, compact=True)
        case "integer":
            return Input("" if default is None else str(default), type="integer", compact=True)
        case "number":
            return Input("" if default is None else str(default), type="number", compact=True)
    choices = _choices(schema)
    if choices:
        known = default if default in [value for _, value in choices] else Select.NULL
        return Select(choices, value=known, compact=True)
    return Input("" if default is None else str(default), compact=True)


def _choices(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """(title, value) of an enumeration, in any of the protocol's forms."""
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        found = [(one.get("title", one["const"]), one["const"]) for one in titled if "const" in one]
    else:
        values = schema.get("enum") or ()
        found = list(zip(schema.get("enumNames") or values, values, strict=False))
    return [(shown(str(title)), str(value)) for title, value in found]


def _value(field: Field) -> object:
    """What was filled in; None: nothing."""
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
