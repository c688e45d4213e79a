"""Answers the questions of MCP servers on a terminal, or with what ``--answer`` says."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from agent.cli.login_prompt import read_line
from agent.errors import UserError
from agent.util.sanitize import echo
from tools.mcp.client_requests import ElicitationRequest, ElicitationResult
from tools.mcp.forms import Form, FormError, FormField, page_host
from tools.sanitize import clean_text

ACTIONS = ("decline", "cancel")
"""Values of ``--answer`` other than a JSON object."""
DEFAULTS, DECLINE = ".", "!"
"""Input that accepts the defaults of all remaining fields, and input that declines."""


class FormAnswers:
    """Answers a call's elicitations: by ``--answer`` in their order, then on the terminal."""

    def __init__(self, answers: Sequence[str]) -> None:
        """``answers``: JSON objects, or one of ACTIONS. Raises UserError."""
        self._answers = [_read_answer(answer) for answer in answers]
        self._asks = not answers
        self.problem: str | None = None

    async def answer(self, question: ElicitationRequest) -> ElicitationResult:
        echo(f"{question.server} asks: {question.message}", file=sys.stderr)
        if question.url is not None:
            echo(f"  {clean_text(question.url)}", file=sys.stderr)
            echo(f"  (a page of {page_host(question.url)})", file=sys.stderr)
        form = Form.from_schema(question.schema)
        if self._answers:
            return self._scripted(question, form, self._answers.pop(0))
        if not (self._asks and sys.stdin and sys.stdin.isatty()):
            self._explain(question, form)
            return ElicitationResult("decline")
        try:
            if question.url is not None:
                return await _confirm("Have you finished there? ")
            return await _ask(form) if form.fields else await _confirm("", {})
        except EOFError:
            return ElicitationResult("cancel")

    def _scripted(
        self, question: ElicitationRequest, form: Form, answer: dict[str, Any] | str
    ) -> ElicitationResult:
        if not isinstance(answer, dict):
            return ElicitationResult("decline" if answer == "decline" else "cancel")
        if question.url is not None:
            return ElicitationResult("accept")
        content = form.defaults | form.resolve_titles(answer)
        try:
            form.check(content)
        except FormError as error:
            self.problem = f"--answer: {error}"
            return ElicitationResult("cancel")
        return ElicitationResult("accept", content)

    def _explain(self, question: ElicitationRequest, form: Form) -> None:
        wanted = [field.name for field in form.fields if field.required or not form.needs_input]
        example = json.dumps(dict.fromkeys(wanted, "…"), ensure_ascii=False)
        hint = "{}" if question.url is not None else example
        echo(f"  Declined: there is no person to answer; --answer '{hint}' does.", file=sys.stderr)


def _read_answer(answer: str) -> dict[str, Any] | str:
    if answer in ACTIONS:
        return answer
    try:
        values = json.loads(answer)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise UserError(f"--answer must be a JSON object, {' or '.join(ACTIONS)}, not {answer!r}.")
    return values


async def _confirm(question: str, content: dict[str, Any] | None = None) -> ElicitationResult:
    """Ask for yes or no; raises EOFError at the end of the input."""
    agrees = (await _read_line(f"  {question}[y/N] ")).lower() in ("y", "yes")
    return ElicitationResult("accept", content) if agrees else ElicitationResult("decline")


async def _ask(form: Form) -> ElicitationResult:
    """Ask for each field; raises EOFError at the end of the input."""
    echo(
        f"  Enter takes the value in brackets, {DEFAULTS} takes all that are left,"
        f" {DECLINE} declines.",
        file=sys.stderr,
    )
    content: dict[str, Any] = {}
    take_defaults = False
    for field in form.fields:
        while True:
            filled = field.initial
            if not (take_defaults and (filled or not field.required)):
                typed = await _read_line(_question(field))
                if typed == DECLINE:
                    return ElicitationResult("decline")
                if typed == DEFAULTS:
                    take_defaults = True
                    continue
                try:
                    filled = _filled(field, typed)
                except FormError as error:
                    echo(f"  {error}", file=sys.stderr)
                    take_defaults = False
                    continue
            content |= filled
            break
    return ElicitationResult("accept", content)


def _filled(field: FormField, typed: str) -> dict[str, Any]:
    """Return the value of what was typed, by the field's name; empty for none. Raises FormError."""
    if typed:
        value = field.parse(typed)
        field.check(value)
        return field.filled(value)
    if field.required and not field.initial:
        raise FormError(field, "is required")
    return field.initial


def _question(field: FormField) -> str:
    title = f"{field.title} *" if field.required else field.title
    about = f": {field.description}" if field.description else ""
    rule = f" ({field.rule})" if field.rule else " (y/n)" if field.kind == "boolean" else ""
    default = "" if field.default is None else f" [{field.describe(field.default)}]"
    if not field.choices:
        return f"  {title}{about}{rule}{default}: "
    rule += "; separate them by commas" if field.kind == "choices" else ""
    choices = "\n".join(f"    {n} {choice}" for n, (choice, _) in enumerate(field.choices, 1))
    return f"  {title}{about}{rule}\n{choices}\n   {default}: "


async def _read_line(prompt: str) -> str:
    echo(prompt, end="", file=sys.stderr)
    return (await read_line()).strip()
