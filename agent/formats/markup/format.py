"""A family that writes markup over text as a Format: one template, one vocabulary.

What the model generates is one message, however many thoughts, calls and texts are in it: it stays as
it was written, between the template's header and end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import Any, Literal

from agent.engine.grammars import Grammars, Spelling
from agent.engine.protocol import Constraint
from agent.formats.constraints import Held, Rules
from agent.formats.markup.chat_template import ChatTemplate, Frame, TemplateUnusable, described
from agent.formats.markup.constraint import MarkupGuide
from agent.formats.markup.dialects import CALL, CALL_END, THINK, THINK_END, Family
from agent.formats.markup.parser import Alphabet, MarkupParser
from agent.formats.markup.vocabulary import Encoder, Vocabulary
from agent.formats.protocol import FunctionTool, Head, Parser
from agent.formats.recipients import Recipients

PYTHON = FunctionTool(
    "python",
    "Runs Python code. Names stay defined from call to call. Gives what the code prints and the"
    " value of its last line.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The code to run"}},
        "required": ["code"],
    },
)
"""For families that were not trained on a python tool of their own."""


class MarkupFormat:
    """Rendering and parsing bound to one vocabulary."""

    def __init__(self, family: Family, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        self.name = family.name
        self.template = template
        self.encoder = Encoder(vocabulary)
        self._family, self._begin = family, vocabulary.begin
        self._vocabulary, self._marks = vocabulary, frozenset(vocabulary.specials.values())
        self._alphabet = Alphabet(vocabulary, family)
        self.stop = frozenset(self._alphabet.stop)
        self._opening = self.encoder.markup(template.opening)
        header = self.encoder.markup(template.header)
        self._header = header if self._opening[: len(header)] == header else self._opening
        self._ending = self.encoder.markup(template.said.after)
        self._thinking = template.opening.rstrip().endswith(THINK)

    # --- what others write ------------------------------------------------------------------------

    def head(self, head: Head) -> list[int]:
        functions = [*head.functions, *head.own, *([PYTHON] if head.python else [])]
        tools = [] if self._family.name == "plain" else [self._declared(f) for f in functions]
        day = date.fromisoformat(head.date)
        instructions = head.instructions
        try:
            before, after = self.template.head(bool(instructions), tools, day)
        except TemplateUnusable:
            # It has no place for instructions and tools: a person says them.
            before, after = self.template.head(False, [], day)
            said = [instructions or "", *(json.dumps(t, ensure_ascii=False) for t in tools)]
            ids = self.encoder.markup(before + after)
            return self._begun(ids) + self.user("\n".join(said).strip())
        ids = self.encoder.markup(before)
        if instructions:
            ids += self.encoder.text(instructions)
        return self._begun(ids + self.encoder.markup(after))

    def _declared(self, function: FunctionTool) -> dict[str, Any]:
        """Descriptions come from servers: what they spell is never markup."""
        declared = described(function.name, function.description, function.parameters)
        harmless: dict[str, Any] = self._harmless(declared)
        return harmless

    def _harmless(self, value: Any) -> Any:
        match value:
            case str():
                return self.encoder.harmless(value)
            case list():
                return [self._harmless(part) for part in value]
            case Mapping():
                return {self._harmless(key): self._harmless(part) for key, part in value.items()}
            case _:
                return value

    def _begun(self, ids: list[int]) -> list[int]:
        if self._begin is None or ids[:1] == [self._begin]:
            return ids
        return [self._begin, *ids]

    def user(self, text: str) -> list[int]:
        return self._framed(self.template.user, text)

    def developer(self, text: str) -> list[int]:
        return self._framed(self.template.developer, text)

    def result(self, recipient: str, text: str) -> list[int]:
        return self._framed(self.template.result, text)

    def further_result(self, results: Sequence[int], text: str) -> list[int]:
        after = self.encoder.markup(self.template.result.after)
        more = Frame(
            self.template.further, self.template.result.after, self.template.result.escaped
        )
        return [*results[: len(results) - len(after)], *self._framed(more, text)]

    def _framed(self, frame: Frame, text: str) -> list[int]:
        if frame.escaped:
            text = json.dumps(text, ensure_ascii=False)[1:-1]
        markup = self.encoder.markup
        return markup(frame.before) + self.encoder.text(text) + markup(frame.after)

    # --- what the model writes --------------------------------------------------------------------

    def open_assistant(self) -> list[int]:
        return list(self._opening)

    def open_call(self, recipient: str | None) -> list[int]:
        if self.name == "plain":
            return []
        ids = self.encoder.markup(f"\n{THINK_END}\n\n") if self._thinking else []
        if recipient is None:
            opened = {"llama3": '{"name": "'}.get(self.name, f"{CALL}\n")
            return ids + self.encoder.markup(opened)
        return ids + self._called(recipient, None)

    def header(self) -> list[int]:
        return list(self._header)

    def ending(self) -> list[int]:
        return list(self._ending)

    def between(self) -> list[int]:
        return self.encoder.markup("\n")

    def close_message(self, ids: Sequence[int], *, call: bool) -> list[int]:
        body, ending = list(ids), self._ending
        if body and body[-1] in self.stop:
            # The template's own end, as far as the model wrote it, stays as it is.
            if body[-1] in ending:
                return body + ending[ending.index(body[-1]) + 1 :]
            body.pop()
        return body + ending

    def plain(self, text: str) -> list[int]:
        return self.encoder.text(text)

    def canonical(self, tool: str) -> str:
        return tool

    def parser(self, recipients: Recipients | None) -> Parser:
        return MarkupParser(self._alphabet, recipients, thinking=self._thinking)

    @property
    def holds(self) -> frozenset[Held]:
        known = self._vocabulary.specials
        held: set[Held] = set()
        if CALL in known and not self._family.xml:
            held.add("arguments")
        if not self._thinking or THINK_END in known:
            held.add("answer")
        return frozenset(held)

    @cached_property
    def grammars(self) -> Grammars:
        def spelling() -> Spelling:
            tokens = [self.spelling(token) for token in range(self._vocabulary.size)]
            return Spelling(tokens, self._marks)

        return Grammars(spelling)

    def guide(self, rules: Rules, recipients: Recipients) -> Constraint:
        return MarkupGuide(
            rules,
            recipients.declared,
            self.grammars,
            self._vocabulary.specials,
            self.stop,
            self._vocabulary.size,
            thinking=self._thinking,
            json_calls="arguments" in self.holds,
        )

    def spelling(self, token: int) -> bytes:
        return self._vocabulary.raw(token) or b""

    def is_markup(self, token: int) -> bool:
        return self._alphabet.raw(token) is None or token in self._marks

    # --- what it wrote elsewhere ------------------------------------------------------------------

    def said(self, text: str, *, phase: Literal["commentary", "final_answer"]) -> list[int]:
        return self._framed(self.template.said, text)

    def call(self, recipient: str, arguments: str, *, json: bool = True) -> list[int]:
        arguments = arguments if json else _coded(arguments)
        said = self.template.said
        markup = self.encoder.markup
        return markup(said.before) + self._called(recipient, arguments) + markup(said.after)

    def _called(self, recipient: str, arguments: str | None) -> list[int]:
        """The call as the family writes it; arguments None: only up to them."""
        markup, text = self.encoder.markup, self.encoder.text
        name = json.dumps(recipient, ensure_ascii=False)
        if self._family.xml:
            ids = markup(f"{CALL}\n<function=") + text(recipient) + markup(">\n")
            if arguments is None:
                return ids
            for key, value in _values(arguments).items():
                shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                ids += text(f"<parameter={key}>\n{shown}\n</parameter>\n")
            return ids + markup(f"</function>\n{CALL_END}")
        if self._family.bare_json:
            ids = text(f'{{"name": {name}, "parameters": ')
            return ids + text(f"{arguments}}}") if arguments is not None else ids
        ids = markup(f"{CALL}\n") + text(f'{{"name": {name}, "arguments": ')
        return ids if arguments is None else ids + text(f"{arguments}}}\n") + markup(CALL_END)

    def thought(self, text: str) -> list[int]:
        if not self.template.thinks:
            return []
        before, after = self.template.header, self.template.said.after
        return self._framed(Frame(f"{before}{THINK}\n", f"\n{THINK_END}\n\n{after}"), text)


def _coded(code: str) -> str:
    return json.dumps({"code": code}, ensure_ascii=False)


def _values(arguments: str) -> Mapping[str, Any]:
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    return values if isinstance(values, dict) else {"arguments": arguments}
