"""Derives how a family writes its messages from the model's chat template.

The template is rendered with sentinels in place of a thought, an answer, a call's name, keys and
values; what it writes around them is the syntax. For example, two calls in Qwen3-Coder's template::

    <tool_call>␊<function=F>␊<parameter=K>␊V␊</parameter>␊</function>␊</tool_call>␊<tool_call>␊<function=G>…

What is both before F and before G begins a call, and what is both after F's arguments and at the end
ends one; the rest is around all calls. llama.cpp, too, compares renderings
(https://github.com/ggml-org/llama.cpp/blob/master/docs/autoparser.md).
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from agent.formats.markup.chat_template import ChatTemplate, tool_schema
from agent.formats.markup.known import SYNTAXES, described_calls
from agent.formats.markup.parser import MarkupParser, TokenClasses
from agent.formats.markup.syntax import ANY, NAMESPACE, CallSyntax, MessageSyntax, tags_of
from agent.formats.markup.template_process import UnusableTemplateError
from agent.formats.markup.vocabulary import ByteVocabulary, MarkupEncoder
from agent.formats.protocol import Delta, Opened, SegmentKind
from agent.util.prefix import common_prefix_length

Render = Callable[..., str]
"""Renders messages: ``render(messages, tools, generate=False)``. Raises UnusableTemplateError."""

_THINK_TAGS = re.compile(r"<([\w:|.-]*think(?:ing)?[\w:|.-]*)>|\[(THINK)\]", re.IGNORECASE)
_LAST_TAG = re.compile(r"(<[^<>\s]+>|\[[^\[\]\s]+\])\s*\Z")


class _Call(NamedTuple):
    """A call in a rendered message: where its parts are."""

    name: int
    """The position of the name or, with ``object``, of the object."""
    name_end: int
    body: int
    end: int


class _Position(NamedTuple):
    """Where a call is looked for."""

    number: int
    name: int
    name_end: int
    last_value: int


_Match = tuple[CallSyntax, int, int] | None
"""The syntax of a call's arguments, their beginning and their end."""


class Derivation:
    """Derives the syntax of one template."""

    def __init__(self, source: str, render: Render, prompt: str, user_end: str) -> None:
        """``prompt``: what the template writes before what the model generates; ``user_end``: what it
        writes after a user's text."""
        self._source, self._render, self._prompt, self._user_end = source, render, prompt, user_end
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
        calls = [text for shape in shapes if (text := self._message(*shape)) is not None]
        known = [text for text in (answer, with_thought, *calls, self._prompt) if text is not None]
        header = _up_to_tag(_common_prefix(known))
        if (tag := _last_think_tag(header)) and not tag[1:].startswith("/"):
            header = header[: header.rindex(tag)]
        answer, with_thought = (text and text[len(header) :] for text in (answer, with_thought))
        calls = [text[len(header) :] for text in calls]
        think = self._derive_thinking(with_thought, calls)
        before, _, after = (answer or "").partition(self._answer)
        thinking = think[:2] if think else ()
        opening = [tag for tag in tags_of(before) if tag not in thinking]
        between = (with_thought or "").partition(self._thought)[2].partition(self._answer)[0]
        opening += [tag for tag in tags_of(between)[1:] if tag not in opening]
        ending = tags_of(after)
        ignored = (*opening, *ending[:1]) if opening else ()
        self._header, self._ending = header.strip(), ending
        if self._header and any(self._header in text for text in (with_thought or "", *calls)):
            ignored = (*ignored, self._header)
        syntax = MessageSyntax(
            "chat template", ends=ending[len(opening[:1]) :], ignored=ignored, source="chat template",
            end_space=after[: len(after) - len(after.lstrip())] if ending else "",
        )  # fmt: skip
        if think:
            names = ("think", "think_end", "think_open", "think_close")
            fields: dict[str, Any] = dict(zip(names, think, strict=True))
            syntax = replace(syntax, **fields)
        for text in calls:
            call = self._derive_call(text, {*thinking, *ignored})
            if call is not None:
                bare = call.body == "object" and not call.openings
                tag = "<|python_tag|>" if "<|python_tag|>" in self._source else ""
                last = {match[1] for one in calls if (match := _LAST_TAG.search(one))}
                last -= {*call.openings, *call.closings, *syntax.ends, *ignored}
                ends = (*syntax.ends, *sorted(last))
                found = replace(syntax, calls=(call,), bare_calls=bare, code_tag=tag, ends=ends)
                return found if any(self._is_read_back(found, one) for one in calls) else syntax
        return syntax

    def _is_read_back(self, syntax: MessageSyntax, text: str) -> bool:
        """Whether the parser finds the calls in a message that the template wrote."""
        vocabulary = ByteVocabulary(syntax.specials)
        parser = MarkupParser(TokenClasses(vocabulary, syntax))
        segments: list[tuple[Opened, list[str]]] = []
        for event in parser.feed(MarkupEncoder(vocabulary).encode_markup(text)) + parser.finish():
            if isinstance(event, Opened):
                segments.append((event, []))
            elif isinstance(event, Delta):
                segments[-1][1].append(event.text)
        calls = [one for one in segments if one[0].kind is SegmentKind.TOOL]
        read = [(call.raw_recipient, _arguments_of("".join(pieces))) for call, pieces in calls]
        written = zip(self._names, self._arguments, strict=True)
        return read == [(name, arguments) for name, arguments in written if name in text]

    def _message(self, answer: str, calls: int = 0, thought: bool = False) -> str | None:
        """Render an assistant's message with its header; None if the template refuses it."""
        message: dict[str, Any] = {"role": "assistant", "content": answer}
        if thought:
            message |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), self._thought)
        if calls:
            message["tool_calls"] = [
                {"id": f"call0000{i + 1}", "type": "function",
                 "function": {"name": self._names[i], "arguments": self._arguments[i]}}
                for i in range(calls)
            ]  # fmt: skip
        text = self._try([{"role": "user", "content": self._user}, message])
        if text is None or self._user not in text:
            return None
        text = text.rpartition(self._user)[2].removeprefix(self._user_end)
        needed = [answer] if answer and not calls else self._names[:calls]
        return text if all(word in text for word in needed) else None

    def _try(self, messages: Sequence[Mapping[str, Any]]) -> str | None:
        properties = {key: {"type": "string"} for key in self._keys}
        parameters = {"type": "object", "properties": properties, "required": []}
        tools = [tool_schema(name, "x", parameters) for name in self._names]
        try:
            return self._render(messages, tools)
        except UnusableTemplateError:
            return None

    # --- thinking ---------------------------------------------------------------------------------

    def _derive_thinking(self, answer: str | None, calls: list[str]) -> tuple[str, ...]:
        """Return the tags around reasoning, and the exact texts before and after it, if any."""
        for text in (answer, *calls):
            before, found, after = (text or "").partition(self._thought)
            behind = re.split(f"{self._answer}|{self._names[0]}", after)[0]
            if not found or not tags_of(before) or not tags_of(behind):
                continue
            tag, end = tags_of(before)[-1], tags_of(behind)[0]
            close = behind[: behind.index(end) + len(end)]
            if text is answer:
                rest = behind[len(close) :]
                close += rest[: len(rest) - len(rest.lstrip())]
            return tag, end, before[before.rindex(tag) :], close
        for tag, end in (
            ("<|inner_prefix|>", "<|inner_suffix|>"),
            ("<|channel>thought", "<channel|>"),
        ):
            if tag.removesuffix("thought") in self._source and end in self._source:
                return tag, end, tag + "\n" * tag.endswith("thought"), end
        for name, upper in _THINK_TAGS.findall(self._source):
            tag, end = (f"[{upper}]", f"[/{upper}]") if upper else (f"<{name}>", f"</{name}>")
            if end in self._source:
                return tag, end, f"{tag}\n", f"\n{end}\n\n"
        return ()

    # --- calls ------------------------------------------------------------------------------------

    def _derive_call(self, text: str, known: set[str]) -> CallSyntax | None:
        """Derive how calls are written from a message with one or two of them."""
        text = re.sub(r"call0000\d", ANY, text)
        for find in (self._as_object, self._as_json, self._as_quoted, self._as_python,
                     self._as_nested, self._as_tags):  # fmt: skip
            if found := self._locate(find, text, 0):
                second = self._locate(find, text, 1) if self._names[1] in text else None
                return self._with_ends(*found, second and second[1], text, known)
        return None

    def _locate(
        self, find: Callable[[str, _Position], _Match], text: str, number: int
    ) -> tuple[CallSyntax, _Call] | None:
        """Find the first or second call, as ``find`` reads calls."""
        at, value = text.find(self._names[number]), self._values[1 + number]
        spot = _Position(number, at, at + len(self._names[number]), text.find(value, at))
        if (found := find(text, spot)) is None:
            return None
        syntax, body, end = found
        is_object = syntax.body == "object"
        spans = (body, body) if is_object else (spot.name, spot.name_end)
        return syntax, _Call(*spans, body, end)

    def _with_ends(
        self, syntax: CallSyntax, first: _Call, second: _Call | None, text: str, known: set[str]
    ) -> CallSyntax:
        """Add what is before, between and after calls."""
        head = text[: first.name]
        head = head.rpartition(self._answer)[2] if self._answer in head else head
        head = head.rpartition(self._thought)[2]
        for tag in (*sorted(known, key=len, reverse=True), self._header):
            if tag and tag in head:
                head = head.rpartition(tag)[2]
        after_name = text[first.name_end : first.body]
        if second is None:
            tail = self._without_end(text[first.end :].partition(self._answer)[0])
            return replace(syntax, open=head, after_name=after_name, close=tail)
        after_name = _merged(after_name, text[second.name_end : second.body])
        between = text[first.end : second.name]
        tail = self._without_end(text[second.end :].partition(self._answer)[0])
        opening = _from_tag(_common_suffix(head, between))
        closing = _up_to_tag(_common_prefix([between[: len(between) - len(opening)], tail]))
        section_open = head[: len(head) - len(opening)]
        rest = tail[len(closing) :]
        return replace(
            syntax, open=opening, after_name=after_name, close=closing,
            separator=between[len(closing) : len(between) - len(opening)],
            section_open=section_open if tags_of(section_open) else "",
            section_close=rest if tags_of(section_open) else "",
        )  # fmt: skip

    def _without_end(self, text: str) -> str:
        """Return what follows a call without the message's end."""
        ends = [text.index(tag) for tag in self._ending if tag in text]
        return text[: min(ends, default=len(text))]

    def _as_object(self, text: str, spot: _Position) -> _Match:
        name, arguments = self._names[spot.number], self._arguments[spot.number]
        for at, value, end in _json_values(text, spot.name):
            if not isinstance(value, dict) or name not in value.values():
                continue
            keys = {key: one for key, one in value.items() if one not in (name, ANY)}
            found = [key for key, one in keys.items() if _arguments_of(one) == arguments]
            if found:
                name_key = next(key for key, one in value.items() if one == name)
                further = tuple(key for key in value if key not in (name_key, found[0]))
                syntax = CallSyntax("object", name_key=name_key, arguments_key=found[0],
                                    other_keys=further)  # fmt: skip
                return syntax, at, end
        return None

    def _as_json(self, text: str, spot: _Position) -> _Match:
        start = spot.name_end
        for at, value, end in _json_values(text[start:]):
            if value == self._arguments[spot.number]:
                return CallSyntax("json"), start + at, start + end
        return None

    def _as_quoted(self, text: str, spot: _Position) -> _Match:
        """A JSON object whose strings have other quotes, and keys none."""
        value = self._values[2 * spot.number]
        pattern = rf"\{{{self._keys[0]}: ?(?P<quote>[^\s\w]\S*?){value}(?P=quote)"
        if (match := re.compile(pattern).search(text, spot.name)) is None:
            return None
        syntax = CallSyntax("json", quote=match["quote"], bare_keys=True)
        return syntax, match.start(), text.find("}", spot.last_value) + 1

    def _as_python(self, text: str, spot: _Position) -> _Match:
        value = self._values[2 * spot.number]
        if not re.match(rf"\({self._keys[0]}=['\"]{value}", text[spot.name_end :]):
            return None
        return CallSyntax("python"), spot.name_end + 1, text.find(")", spot.last_value) + 1

    def _as_nested(self, text: str, spot: _Position) -> _Match:
        key, value, before = self._keys[0], self._values[2 * spot.number], re.escape(NAMESPACE)
        pattern = rf"(?P<open>(?:{before})?<){key}>{value}(?P<close>(?:{before})?</){key}>"
        if (match := re.compile(pattern).search(text, spot.name)) is None:
            return None
        opening, closing = f"{match['open']}{ANY}>", f"{match['close']}{ANY}>"
        last = f"/{self._keys[1 - spot.number]}>"
        end = text.find(last, spot.last_value) + len(last)
        syntax = CallSyntax("nested", key_open=opening, value_close=closing)
        return syntax, match.start(), end

    def _as_tags(self, text: str, spot: _Position) -> _Match:
        """Keys and values in tags; the first call, with two of each, shows them."""
        k, v, first = self._keys, self._values, text.find(self._names[0])
        spots = [text.find(word, first) for word in (k[0], v[0], k[1], v[1])]
        if sorted(spots) != spots or spots[0] < 0:
            return None
        middle = text[first + len(self._names[0]) : spots[0]]
        gap = text[spots[1] + len(v[0]) : spots[2]]
        key_open = _from_tag(_common_suffix(middle, gap))
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
        text = self._with_value(70007)
        after = text.partition(self._keys[0])[2].partition("70007")
        return _merged(key_close, after[0]) if after[1] else key_close

    def _wrap(self) -> tuple[str, str]:
        """Return what is around a string with markup, if anything is."""
        plain, marked = self._values[0], f"<{self._values[0]}&"
        one, other = self._with_value(plain), self._with_value(marked)
        before, found, after = other.partition(marked)
        if not found:
            return "", ""
        start = _common_prefix([before, one.partition(plain)[0]])
        end = _common_suffix(after, one.partition(plain)[2])
        return before[len(start) :], after[: len(after) - len(end)]

    def _with_value(self, value: object) -> str:
        function = {"name": self._names[0], "arguments": {self._keys[0]: value}}
        call = {"id": "call00001", "type": "function", "function": function}
        message = {"role": "assistant", "content": "", "tool_calls": [call]}
        text = self._try([{"role": "user", "content": self._user}, message]) or ""
        return text.partition(self._user)[2]


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


def _common_prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    return first[: common_prefix_length(first, last)]


def _common_suffix(first: str, second: str) -> str:
    return _common_prefix([first[::-1], second[::-1]])[::-1]


def _merged(first: str, second: str) -> str:
    """Join two texts, with `ANY` where they differ."""
    if first == second:
        return first
    start = _common_prefix([first, second])
    end = _common_suffix(first[len(start) :], second[len(start) :])
    start, end = start.rstrip("tf"), end.lstrip("e")
    return start + ANY + end


def _up_to_tag(text: str) -> str:
    """Return the text without the part of a tag at its end."""
    opened = max(text.rfind("<"), text.rfind("["))
    closed = max(text.rfind(">"), text.rfind("]"))
    return text[:opened] if opened > closed else text


def _from_tag(text: str) -> str:
    """Return the text without the part of a tag at its beginning."""
    opened = [at for at in (text.find("<"), text.find("["), text.find(NAMESPACE)) if at >= 0]
    closed = [at for at in (text.find(">"), text.find("]")) if at >= 0]
    if opened and closed and min(closed) < min(opened) and not text.startswith(NAMESPACE):
        return text[min(opened) :]
    return text.lstrip("\n") if opened else text


def _last_think_tag(text: str) -> str:
    tags = list(_THINK_TAGS.finditer(text))
    return tags[-1][0] if tags and not text[tags[-1].end() :].strip() else ""


def derive_syntax(source: str, template: ChatTemplate) -> MessageSyntax:
    """Derive the syntax of the messages of a model with this chat template."""
    frames = template.frames
    prompt, user_end = frames.generation_prompt, frames.user.after
    syntax = Derivation(source, template.render, prompt, user_end).derive()
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
    """Whether two syntaxes have the same tags."""
    return bool(
        _THINKING(first) == _THINKING(second) and _CALL(first.calls[0]) == _CALL(second.calls[0])
    )
