"""Derives how a family writes its messages from the model's chat template.

The template is rendered with sentinels in place of a thought, an answer, a call's name, keys and
values; what it writes around them is the syntax. For example, two calls in Qwen3-Coder's template::

    <tool_call>␊<function=F>␊<parameter=K>␊V␊</parameter>␊</function>␊</tool_call>␊<tool_call>␊<function=G>…

What is both before F and before G begins a call, and what is both after F's arguments and at the end
ends one; the rest is around all calls. llama.cpp, too, compares renderings
(https://github.com/ggml-org/llama.cpp/blob/master/docs/autoparser.md).
"""

import functools
import json
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from agent.formats.markup.chat_template import (
    NAMESPACE,
    ChatTemplate,
    TemplateMessage,
    common_prefix,
    common_suffix,
    message,
    shows_parts,
    thinking_parts,
    tool_schema,
)
from agent.formats.markup.known import SYNTAXES, described_calls
from agent.formats.markup.parser import MarkupParser
from agent.formats.markup.segments import TokenClasses
from agent.formats.markup.syntax import ANY, CallSyntax, MessageSyntax, tags_of
from agent.formats.markup.template_process import UnusableTemplateError
from agent.formats.markup.vocabulary import ByteVocabulary, MarkupEncoder
from agent.formats.protocol import Delta, Opened, SegmentKind
from agent.util.prefix import common_prefix_length

_THINK_TAGS = re.compile(r"<([\w:|.-]*think(?:ing)?[\w:|.-]*)>|\[(THINK)\]", re.IGNORECASE)
_LAST_TAG = re.compile(r"(<[^<>\s]+>|\[[^\[\]\s]+\])\s*\Z")


class _Position(NamedTuple):
    """Where a call is looked for."""

    number: int
    name: int
    name_end: int
    last_value: int


_Arguments = tuple[CallSyntax, int, int]
"""The syntax of a call's arguments, their beginning and their end."""


class _Call(NamedTuple):
    """A call in a rendered message."""

    syntax: CallSyntax
    start: int
    """The position of the name or, with ``object``, of the object."""
    after_name: str
    end: int


class Derivation:
    """Derives the syntax of one template."""

    def __init__(self, source: str, template: ChatTemplate) -> None:
        self._source, self._template = source, template
        nonce = secrets.token_hex(3)
        self._user, self._thought, self._answer = (f"{word}x{nonce}" for word in ("u", "t", "a"))
        self._names = [f"f{i}x{nonce}" for i in (1, 2)]
        self._keys = [f"k{i}x{nonce}" for i in (1, 2)]
        self._values = [f"v{i}x{nonce}" for i in (1, 2, 3)]
        k, v = self._keys, self._values
        self._arguments: list[dict[str, Any]] = [{k[0]: v[0], k[1]: v[1]}, {k[0]: v[2]}]

    def derive(self) -> MessageSyntax:
        """Derive the syntax, without calls where these cannot be derived."""
        answer = self._message(self._answer)
        with_thought = self._message(self._answer, thought=True)
        shapes = ((self._answer, 2, False), (self._answer, 1, False), ("", 1, True), ("", 1, False))
        calls = [text for shape in shapes if (text := self._message(*shape))]
        known = filter(None, (answer, with_thought, *calls))
        header = functools.reduce(common_prefix, known, self._template.frames.generation_prompt)
        *_, tag = (None, *_THINK_TAGS.finditer(header))
        if tag and not header[tag.end() :].strip() and tag[0][1] != "/":
            header = header[: tag.start()]
        answer, with_thought = (text[len(header) :] for text in (answer, with_thought))
        calls = [text[len(header) :] for text in calls]
        syntax = MessageSyntax("chat template", source="chat template")
        thinking: tuple[str, ...] = ()
        if think := self._derive_thinking(with_thought, calls):
            syntax = replace(syntax, think_open=think[0], think_close=think[1])
            thinking = syntax.think, syntax.think_end
        before, _, after = answer.partition(self._answer)
        opening = [tag for tag in tags_of(before) if tag not in thinking]
        between = with_thought.partition(self._thought)[2].partition(self._answer)[0]
        opening += [tag for tag in tags_of(between)[1:] if tag not in opening]
        ending = tags_of(after)
        ignored = (*opening, *ending[:1]) if opening else ()
        self._header, self._ending = header.strip(), ending
        if self._header and any(self._header in text for text in (with_thought, *calls)):
            ignored = (*ignored, self._header)
        syntax = replace(
            syntax, ends=ending[len(opening[:1]) :], ignored=ignored,
            end_space=after[: len(after) - len(after.lstrip())] if ending else "",
        )  # fmt: skip
        for text in calls:
            call = self._derive_call(text, {*thinking, *ignored})
            if call is not None:
                bare = call.body == "object" and not call.openings
                code_tag = "<|python_tag|>" if "<|python_tag|>" in self._source else ""
                last = {match[1] for one in calls if (match := _LAST_TAG.search(one))}
                last -= {*call.openings, *call.closings, *syntax.ends, *ignored}
                ends = (*syntax.ends, *sorted(last))
                full = replace(syntax, calls=(call,), bare_calls=bare, code_tag=code_tag, ends=ends)
                return full if any(self._is_read_back(full, one) for one in calls) else syntax
        return syntax

    def _is_read_back(self, syntax: MessageSyntax, text: str) -> bool:
        """Whether the parser finds the calls in a message that the template wrote."""
        vocabulary = ByteVocabulary(syntax.specials)
        parser = MarkupParser(TokenClasses(vocabulary, syntax))
        segments: list[list[Any]] = []
        for event in parser.feed(MarkupEncoder(vocabulary).encode_markup(text)) + parser.finish():
            if isinstance(event, Opened):
                segments.append([event.kind, event.raw_recipient, ""])
            elif isinstance(event, Delta):
                segments[-1][2] += event.text
        calls = [(name, body) for kind, name, body in segments if kind is SegmentKind.TOOL]
        written = zip(self._names, self._arguments, strict=True)
        return [(name, _arguments_of(arguments)) for name, arguments in calls] == [
            (name, arguments) for name, arguments in written if name in text
        ]

    def _message(self, answer: str, calls: int = 0, thought: bool = False) -> str:
        """Render an assistant's message with its header; empty if the template refuses it."""
        written = zip(self._names[:calls], self._arguments, strict=False)
        assistant = message("assistant", answer, [*written])
        if thought:
            keys = ("reasoning_content", "reasoning", "thinking")
            assistant |= dict.fromkeys(keys, self._thought)
        text = self._render(assistant)
        if thought and self._thought not in (text or ""):
            parts = self._render(assistant | {"content": thinking_parts(self._thought, answer)})
            if parts is not None and self._thought in parts and not shows_parts(parts):
                text = parts
        needed = [answer] if answer and not calls else self._names[:calls]
        is_written = all(word in text for word in needed)
        return text.removeprefix(self._template.frames.user.after) if is_written else ""

    def _render(self, assistant: TemplateMessage) -> str:
        """Render what follows a user's text; empty if the template refuses it."""
        properties = {key: {"type": "string"} for key in self._keys}
        parameters = {"type": "object", "properties": properties, "required": []}
        tools = [tool_schema(name, "x", parameters) for name in self._names]
        with suppress(UnusableTemplateError):
            text = self._template.render([message("user", self._user), assistant], tools)
            return text.rpartition(self._user)[2] if self._user in text else ""
        return ""

    # --- thinking ---------------------------------------------------------------------------------

    def _derive_thinking(self, answer: str, calls: list[str]) -> tuple[str, str] | None:
        """Return the exact texts before and after reasoning, if any."""
        for text in (answer, *calls):
            before, found, after = text.partition(self._thought)
            behind = re.split(f"{self._answer}|{self._names[0]}", after)[0]
            if not found or not tags_of(before) or not tags_of(behind):
                continue
            tag, end = tags_of(before)[-1], tags_of(behind)[0]
            close = behind[: behind.index(end) + len(end)]
            if text is answer:
                rest = behind[len(close) :]
                close += rest[: len(rest) - len(rest.lstrip())]
            return before[before.rindex(tag) :], close
        for tag, kind, end in (
            ("<|inner_prefix|>", "", "<|inner_suffix|>"),
            ("<|channel>", "thought\n", "<channel|>"),
        ):
            if tag in self._source and end in self._source:
                return tag + kind, end
        for name, upper in _THINK_TAGS.findall(self._source):
            tag, end = (f"[{upper}]", f"[/{upper}]") if upper else (f"<{name}>", f"</{name}>")
            if end in self._source:
                return f"{tag}\n", f"\n{end}\n\n"
        return None

    # --- calls ------------------------------------------------------------------------------------

    def _derive_call(self, text: str, known: set[str]) -> CallSyntax | None:
        """Derive how calls are written from a message with one or two of them."""
        text = re.sub(r"call0000\d", ANY, text)
        for find in (self._as_object, self._as_json, self._as_quoted, self._as_python,
                     self._as_nested, self._as_tags):  # fmt: skip
            if first := self._locate(find, text, 0):
                second = self._locate(find, text, 1) if self._names[1] in text else None
                return self._with_ends(first, second, text, known)
        return None

    def _locate(
        self, find: Callable[[str, _Position], _Arguments | None], text: str, number: int
    ) -> _Call | None:
        """Find the first or second call, as ``find`` reads calls."""
        at, value = text.find(self._names[number]), self._values[1 + number]
        name_end = at + len(self._names[number])
        found = find(text, _Position(number, at, name_end, text.find(value, at)))
        if found is None:
            return None
        syntax, body, end = found
        is_object = syntax.body == "object"
        return _Call(syntax, body if is_object else at, text[name_end:body] * (not is_object), end)

    def _with_ends(
        self, first: _Call, second: _Call | None, text: str, known: set[str]
    ) -> CallSyntax:
        """Add what is before, between and after calls."""
        head = text[: first.start].rpartition(self._answer)[2].rpartition(self._thought)[2]
        for tag in (*sorted(known, key=len, reverse=True), self._header):
            head = head.rpartition(tag)[2] if tag else head
        tail = text[(second or first).end :].partition(self._answer)[0]
        end = min((tail.index(tag) for tag in self._ending if tag in tail), default=len(tail))
        tail = tail[:end]
        if second is None:
            return replace(first.syntax, open=head, after_name=first.after_name, close=tail)
        between = text[first.end : second.start]
        opening = _common_opening(head, between)
        separator = between.removesuffix(opening)
        closing = common_prefix(separator, tail)
        section_open = head.removesuffix(opening)
        in_section = bool(tags_of(section_open))
        return replace(
            first.syntax,
            open=opening,
            after_name=_merged(first.after_name, second.after_name),
            close=closing,
            separator=separator.removeprefix(closing),
            section_open=section_open * in_section,
            section_close=tail.removeprefix(closing) * in_section,
        )

    def _as_object(self, text: str, spot: _Position) -> _Arguments | None:
        name, arguments = self._names[spot.number], self._arguments[spot.number]
        for at, value, end in _json_values(text, spot.name):
            names = [key for key, one in value.items() if one == name]
            keys = [key for key, one in value.items() if _arguments_of(one) == arguments]
            if names and keys:
                further = tuple(key for key in value if key not in (names[0], keys[0]))
                syntax = CallSyntax("object", name_key=names[0], arguments_key=keys[0],
                                    other_keys=further)  # fmt: skip
                return syntax, at, end
        return None

    def _as_json(self, text: str, spot: _Position) -> _Arguments | None:
        start = spot.name_end
        for at, value, end in _json_values(text[start:]):
            if value == self._arguments[spot.number]:
                return CallSyntax("json"), start + at, start + end
        return None

    def _as_quoted(self, text: str, spot: _Position) -> _Arguments | None:
        """A JSON object whose strings have other quotes, and keys none."""
        value = self._values[2 * spot.number]
        pattern = rf"\{{{self._keys[0]}: ?(?P<quote>[^\s\w]\S*?){value}(?P=quote)"
        if (match := re.compile(pattern).search(text, spot.name)) is None:
            return None
        syntax = CallSyntax("json", quote=match["quote"], bare_keys=True)
        return syntax, match.start(), text.find("}", spot.last_value) + 1

    def _as_python(self, text: str, spot: _Position) -> _Arguments | None:
        value = self._values[2 * spot.number]
        if not re.match(rf"\({self._keys[0]}=['\"]{value}", text[spot.name_end :]):
            return None
        return CallSyntax("python"), spot.name_end + 1, text.find(")", spot.last_value) + 1

    def _as_nested(self, text: str, spot: _Position) -> _Arguments | None:
        key, value, before = self._keys[0], self._values[2 * spot.number], re.escape(NAMESPACE)
        pattern = rf"(?P<open>(?:{before})?<){key}>{value}(?P<close>(?:{before})?</){key}>"
        if (match := re.compile(pattern).search(text, spot.name)) is None:
            return None
        opening, closing = f"{match['open']}{ANY}>", f"{match['close']}{ANY}>"
        last = f"/{self._keys[1 - spot.number]}>"
        end = text.find(last, spot.last_value) + len(last)
        return CallSyntax("nested", key_open=opening, value_close=closing), match.start(), end

    def _as_tags(self, text: str, spot: _Position) -> _Arguments | None:
        """Keys and values in tags; the first call, with two of each, shows them."""
        k, v, first = self._keys, self._values, text.find(self._names[0])
        spots = [text.find(word, first) for word in (k[0], v[0], k[1], v[1])]
        if sorted(spots) != spots or spots[0] < 0:
            return None
        middle = text[first + len(self._names[0]) : spots[0]]
        gap = text[spots[1] + len(v[0]) : spots[2]]
        key_open = _common_opening(middle, gap)
        if not tags_of(key_open):
            return None
        value_close = gap[: len(gap) - len(key_open)]
        key_close = self._with_type(text[spots[0] + len(k[0]) : spots[1]])
        syntax = CallSyntax("tags", key_open=key_open, key_close=key_close,
                            value_close=value_close, wrap=self._wrap())  # fmt: skip
        closing = ("", *tags_of(value_close))[-1]
        end = text.find(closing, spot.last_value) + len(closing)
        return syntax, text.find(key_open, spot.name), end

    def _with_type(self, key_close: str) -> str:
        """Replace the type in what is between key and value, which a number shows."""
        after = self._with_value(70007).partition(self._keys[0])[2].partition("70007")
        return _merged(key_close, after[0]) if after[1] else key_close

    def _wrap(self) -> tuple[str, str]:
        """Return what is around a string with markup, if anything is."""
        plain, marked = self._values[0], f"<{self._values[0]}&"
        one, other = self._with_value(plain), self._with_value(marked)
        before, found, after = other.partition(marked)
        if not found:
            return "", ""
        start = common_prefix(before, one.partition(plain)[0])
        end = common_suffix(after, one.partition(plain)[2])
        return before.removeprefix(start), after.removesuffix(end)

    def _with_value(self, value: object) -> str:
        return self._render(message("assistant", "", [(self._names[0], {self._keys[0]: value})]))


def _arguments_of(value: Any) -> Any:
    """Arguments, of which some templates write the JSON as a string."""
    with suppress(ValueError):
        return json.loads(value) if isinstance(value, str) else value
    return value


def _json_values(text: str, end: int | None = None) -> list[tuple[int, Any, int]]:
    """The JSON objects in a text that begin before ``end``, the outermost first."""
    decoder, text = json.JSONDecoder(), text.replace(ANY, " ")
    found = []
    for match in re.finditer(r"\{", text[:end]):
        with suppress(ValueError, RecursionError):
            found.append((match.start(), *decoder.raw_decode(text, match.start())))
    return found


def _merged(first: str, second: str) -> str:
    """Join two texts, with `ANY` where they differ."""
    if first == second:
        return first
    start = first[: common_prefix_length(first, second)]
    rest = len(start)
    end = first[len(first) - common_prefix_length(first[rest:][::-1], second[rest:][::-1]) :]
    return start.rstrip("tf") + ANY + end.lstrip("e")


def _common_opening(first: str, second: str) -> str:
    """Return the end that two texts have in common, from a tag on."""
    end = common_suffix(first, second)
    return end.lstrip("\n") if "<" in end or "[" in end else end


def derive_syntax(source: str, template: ChatTemplate) -> MessageSyntax:
    frames, syntax = template.frames, Derivation(source, template).derive()
    if not syntax.calls:
        syntax = replace(syntax, calls=described_calls(source))
    for known in SYNTAXES.values():
        if known.calls and syntax.calls and _writes_as(syntax, known):
            ends = tuple(dict.fromkeys((*syntax.ends, *known.ends)))
            return replace(known, ends=ends, end_space=syntax.end_space, think_open=syntax.think_open,
                           think_close=syntax.think_close, source=syntax.source)  # fmt: skip
    turns = (*tags_of(frames.user.before)[:1], *tags_of(frames.results.frame.before)[:1])
    turns = tuple(tag for tag in turns if tag not in syntax.tags and tag[0] in "<[")
    if syntax.calls:
        return replace(syntax, turns=turns)
    plain = SYNTAXES["plain"]
    ends = tuple(dict.fromkeys((*syntax.ends, *plain.ends)))
    turns = tuple(dict.fromkeys((*turns, *plain.turns)))
    return replace(syntax, name="plain", ends=ends, turns=turns, source="none")


_THINKING = attrgetter("think", "think_end", "ignored", "bare_calls")
_CALL = attrgetter("body", "openings", "closings", "arguments_key", "key_tag", "value_tag")


def _writes_as(first: MessageSyntax, second: MessageSyntax) -> bool:
    has_same_calls = _CALL(first.calls[0]) == _CALL(second.calls[0])
    return bool(has_same_calls and _THINKING(first) == _THINKING(second))
