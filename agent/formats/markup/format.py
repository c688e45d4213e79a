"""The `Format` of a model that writes markup in text: a chat template and a vocabulary. A generation is
one message, which stays as it was written between the template's header and end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from datetime import date
from functools import cached_property

from agent.engine.grammars import GrammarCompiler, TokenBytes
from agent.engine.protocol import Constraint, EngineError
from agent.events import Phase
from agent.formats.markup.chat_template import ChatTemplate, MessageFrame, ResultFrames, tool_schema
from agent.formats.markup.constraint import MarkupConstraint
from agent.formats.markup.known import HERMES
from agent.formats.markup.message_grammar import MessageGrammar
from agent.formats.markup.parser import MarkupParser
from agent.formats.markup.segments import TokenClasses
from agent.formats.markup.syntax import ANY, MessageSyntax, to_json
from agent.formats.markup.template_process import UnusableTemplateError
from agent.formats.markup.vocabulary import MarkupEncoder, MarkupVocabulary
from agent.formats.protocol import (
    ConstraintKind,
    Effort,
    FunctionTool,
    GenerationConstraints,
    Parser,
    PromptHeader,
)
from agent.formats.recipients import PYTHON_TOOL, Recipients

PYTHON_FUNCTION = FunctionTool(
    PYTHON_TOOL,
    "Runs Python code. Names stay defined from call to call. Gives what the code prints and the"
    " value of its last line.",
    {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The code to run"}},
        "required": ["code"],
    },
)
"""The python tool for models that were not trained on one of their own."""


class MarkupFormat:
    """Renderer, parser and constraints of one syntax with one vocabulary and template."""

    keep_calls = True

    def __init__(
        self, syntax: MessageSyntax, vocabulary: MarkupVocabulary, template: ChatTemplate
    ) -> None:
        self.name, self.source = syntax.name, syntax.source
        self.parses_calls = bool(syntax.calls)
        self.template = template
        self.encoder = MarkupEncoder(vocabulary)
        self.encode_text, self.encode_markup = self.encoder.encode_text, self.encoder.encode_markup
        self._syntax, self.begin_id = syntax, vocabulary.begin_id
        self._vocabulary, self._special_ids = vocabulary, frozenset(vocabulary.specials.values())
        self._token_classes = TokenClasses(vocabulary, syntax)
        self.stop_ids = frozenset(self._token_classes.stop_ids)
        self._message_end = self.encode_markup(template.frames.assistant.after)
        call_end = template.frames.results.call_end
        self._call_end = self.encode_markup(call_end)
        closing = "".join(each.close + each.section_close for each in syntax.calls[:1])
        written = (n for n in range(len(call_end), -1, -1) if closing.endswith(call_end[:n]))
        self._closed_call_end = self.encode_markup(call_end[next(written) :])
        self._variants: dict[tuple[Effort, bool], MarkupFormat] = {}
        self._open("medium", after_result=False)
        self._variants["medium", False] = self

    # --- prompts ------------------------------------------------------------------------------

    @property
    def effort_control(self) -> bool:
        return self.template.effort_control

    def with_effort(self, effort: Effort) -> MarkupFormat:
        return self._variant(effort, after_result=False)

    def after_result(self) -> MarkupFormat:
        return self._variant(self._effort, after_result=True)

    def _variant(self, effort: Effort, *, after_result: bool) -> MarkupFormat:
        """Return the format with the generation prompt of an effort and of a place in the turn."""
        variant = self._variants.get((effort, after_result))
        if variant is None:
            _ = self.grammars  # all variants have the same
            variant = self._variants[effort, after_result] = copy(self)
            variant._open(effort, after_result=after_result)
        return variant

    def _open(self, effort: Effort, *, after_result: bool) -> None:
        self._effort = effort
        opening = self.template.opening(effort, after_result=after_result)
        self._generation_prompt = self.encode_markup(opening.prompt)
        header = self.encode_markup(opening.header)
        is_beginning = self._generation_prompt[: len(header)] == header
        self._message_header = header if is_beginning else self._generation_prompt
        think, self._opening = self._syntax.think, opening
        self._starts_thinking = bool(think) and opening.prompt.rstrip().endswith(think)
        self._knows_thinking = self._starts_thinking or self.template.has_thinking
        self._think_open = "" if self._starts_thinking else self._syntax.think_open

    def keeps_reasoning(self, *, tools: bool) -> bool:
        return self.template.keeps_reasoning[tools]

    def without_reasoning(self, header: Sequence[int], following: Sequence[int]) -> list[int]:
        text = b"".join(map(self.token_bytes, following[:64])).decode("utf-8", "replace")
        for each in self._variants.values():
            if header in (each._message_header, each._generation_prompt):
                instead = each._opening.instead_of_reasoning(text)
                return each._message_header + self.encode_markup(instead)
        return list(header)

    def describe_functions(self, functions: Sequence[FunctionTool]) -> str:
        schemas = [tool_schema(f.model_name, f.description, f.argument_schema) for f in functions]
        return "\n".join(json.dumps(schema, ensure_ascii=False) for schema in schemas)

    def prompt_header(self, header: PromptHeader) -> list[int]:
        python = [PYTHON_FUNCTION] if header.python else []
        functions = [*header.functions, *header.builtin_tools, *python]
        schemas = [tool_schema(f.name, f.description, f.argument_schema) for f in functions]
        # Without markup: descriptions come from servers.
        tools = [] if not self.parses_calls else [self.encoder.break_markup(s) for s in schemas]
        day, instructions = date.fromisoformat(header.date), header.instructions or ""
        texts = [instructions, *(json.dumps(t, ensure_ascii=False) for t in tools)]
        with_tools = "\n".join(texts).strip()
        # A template may have no place for tools, or none for instructions either.
        for text, declared in ((instructions, tools), (with_tools, []), ("", [])):
            try:
                frame = self.template.prompt_header(bool(text), declared, day, header.effort)
                break
            except UnusableTemplateError as error:
                reason = error
        else:
            raise EngineError(f"The model's chat template cannot be used: {reason}.") from reason
        ids = self.encoder.encode_framed(frame, text)
        if with_tools and not (text or declared):
            ids += self.user_message(with_tools)
        if self.begin_id is None or ids[:1] == [self.begin_id]:
            return ids
        return [self.begin_id, *ids]

    def user_message(self, text: str) -> list[int]:
        return self.encoder.encode_framed(self.template.frames.user, text)

    def developer_message(self, text: str) -> list[int]:
        """Render a later system message, or a user's where the template allows none."""
        return self.encoder.encode_framed(self.template.frames.developer, text)

    def tool_result(self, recipient: str, text: str) -> list[int]:
        """Render a tool's result, with the tool's name where the template has it."""
        return self.encoder.encode_framed(self._result_frames(recipient).frame, text)

    def append_result(self, results: Sequence[int], recipient: str, text: str) -> list[int]:
        frames = self._result_frames(recipient)
        after = self.encode_markup(frames.frame.after)
        more = MessageFrame(frames.separator, frames.frame.after, frames.frame.escaped)
        return [*results[: len(results) - len(after)], *self.encoder.encode_framed(more, text)]

    def _result_frames(self, recipient: str) -> ResultFrames:
        return self.template.frames.results.named(str(self.encoder.break_markup(recipient)))

    # --- generation ---------------------------------------------------------------------------

    def open_assistant(self) -> list[int]:
        return list(self._generation_prompt)

    def open_answer(self) -> list[int]:
        """Return the end of the reasoning, after its beginning if the generation prompt has none."""
        thought = self._think_open + self._syntax.think_close
        return self.encode_markup(thought) if self._knows_thinking else []

    def begin_message(self, reasoning: str | None, answer: str | None) -> list[int]:
        """Return the reasoning within ``<think>``, which the generation prompt may have begun, and the
        answer. Raises ValueError where the template knows no reasoning."""
        if reasoning is None:
            return self.open_answer() + self.encode_text(answer or "")
        if not self._knows_thinking:
            raise ValueError("the model's chat template knows no reasoning")
        ids = self.encode_markup(self._think_open) + self.encode_text(reasoning)
        return ids if answer is None else ids + self.end_reasoning() + self.encode_text(answer)

    def end_reasoning(self, *, before_call: bool = False) -> list[int]:
        return self.encode_markup(self._syntax.think_close)

    def open_call(self, recipient: str | None) -> list[int]:
        """Return the beginning of a call of the tool or, with None, of any; nothing for plain text."""
        if not self._syntax.calls:
            return []
        call = self._syntax.calls[0]
        if recipient is not None:
            return self.open_answer() + call.encode(self.encoder, recipient, None)
        beginning = call.section_open + call.open or f'{{"{call.name_key}": "'
        return self.open_answer() + self.encode_markup(beginning.partition(ANY)[0])

    def message_header(self) -> list[int]:
        return list(self._message_header)

    def message_end(self, *, call: bool = False) -> list[int]:
        return list(self._closed_call_end if call else self._message_end)

    def part_separator(self) -> list[int]:
        return self.encode_markup("\n")

    def close_message(self, ids: Sequence[int], *, call: bool) -> list[int]:
        """End a generated message as the template does, without repeating what the model wrote."""
        body, message_end = list(ids), self._call_end if call else self._message_end
        if body and body[-1] in self.stop_ids:
            # If the model wrote a part of the template's end, the rest is added.
            if body[-1] in message_end:
                return body + message_end[message_end.index(body[-1]) + 1 :]
            body.pop()
            message_end = self.message_end(call=call)  # a call has been closed
        return body + message_end

    def canonical_name(self, tool: str, *, function: bool = False) -> str:
        """Return the name unchanged: these formats have no namespaces."""
        return tool

    def channel(self, ids: Sequence[int]) -> str | None:
        """Return None: these formats have no channels."""
        return None

    def parser(self, recipients: Recipients | None) -> Parser:
        classes, tag = self._token_classes, self._prompt_tag
        return MarkupParser(classes, recipients, thinking=self._starts_thinking, prompt_tag=tag)

    @property
    def _prompt_tag(self) -> str:
        """The tag of a call that the generation prompt ends with."""
        return next((tag for tag in self._syntax.entries if self._opening.prompt.endswith(tag)), "")

    @property
    def supported_constraints(self) -> frozenset[ConstraintKind]:
        if self._syntax.header is not None or self._prompt_tag:
            return frozenset()  # messages begin otherwise
        return frozenset({"choice", "answer", "arguments"} if self.parses_calls else {"answer"})

    @cached_property
    def grammars(self) -> GrammarCompiler:
        def token_bytes() -> TokenBytes:
            tokens = [self.token_bytes(token) for token in range(self._vocabulary.size)]
            return TokenBytes(tokens, self._special_ids)

        return GrammarCompiler(token_bytes)

    def new_constraint(
        self, constraints: GenerationConstraints, recipients: Recipients
    ) -> Constraint:
        specials = self._vocabulary.specials
        grammar = MessageGrammar(
            self._syntax, specials, self.stop_ids, constraints, recipients.declared, self.grammars
        )
        return MarkupConstraint(grammar, self._vocabulary, thinking=self._starts_thinking)

    def token_bytes(self, token: int) -> bytes:
        return self._vocabulary.token_bytes(token) or b""

    def is_markup(self, token: int) -> bool:
        return self._token_classes.text_bytes(token) is None or token in self._special_ids

    # --- imported histories ----------------------------------------------------------------------

    def assistant_message(self, text: str, *, phase: Phase) -> list[int]:
        """Render an assistant's message; the template does not distinguish phases."""
        return self._message_header + self.encode_text(text) + self._message_end

    def tool_call(self, recipient: str, arguments: str, *, json: bool = True) -> list[int]:
        arguments = arguments if json else to_json({"code": arguments})
        call = (self._syntax.calls or (HERMES,))[0].encode(self.encoder, recipient, arguments)
        return self._message_header + call + self._closed_call_end

    def join_calls(self, call: list[int], following: list[int]) -> tuple[list[int], list[int]]:
        syntax, markup = (self._syntax.calls or (HERMES,))[0], self.encode_markup
        opening, closing = markup(syntax.section_open), markup(syntax.section_close)
        if closing and call[-len(closing) :] == closing and following[: len(opening)] == opening:
            call, following = call[: -len(closing)], following[len(opening) :]
        return call, markup(syntax.separator) + following

    def reasoning_message(self, text: str) -> list[int]:
        opening, think = self._syntax.think_open, self._syntax.think
        if not (self.template.has_thinking and opening):
            return []
        if think and self._opening.header.endswith(think):
            opening = opening.partition(think)[2]
        body = self.encoder.encode_framed(MessageFrame(opening, self._syntax.think_close), text)
        return self._message_header + body + self._message_end
