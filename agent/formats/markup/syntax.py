"""The syntax of the messages of a family of models, as data: the inverse of its chat template.

A `MessageSyntax` holds the exact texts around reasoning, answer and calls. The parser reads them with
any white space between tags and whether a tag is one special id or spelled in ordinary tokens, as
finetunes do both; renderers write them exactly. A call consists of::

    section_open  open NAME after_name BODY close  open NAME after_name BODY close  section_close

`agent.formats.markup.derive` finds the texts in a chat template; `known` has those of families whose
templates do not show them; `response_template` reads them from Hugging Face's form
(https://huggingface.co/docs/transformers/chat_response_parsing).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import regex

from agent.formats.markup.vocabulary import MarkupEncoder

ANY = "\0"
"""Stands for text that differs from call to call: a number, an id, a type."""
NAME_PREFIX = "functions."
"""Kimi K2 puts this before the name; it may be missing."""
NAMESPACE = "]<]minimax[>["
"""MiniMax M3 puts this token before each tag of a call."""
_TAG_BOUNDARY = regex.compile(r"(?<=[>\]\0])\s*(?=[<\[\x01])|\s*\n\s*")

_TYPE = "(true|false|string|number|integer|boolean|array|object|null)"

BodyKind = Literal["object", "json", "tags", "nested", "python"]
"""``object``: JSON with name and arguments; ``json``: the arguments as JSON; ``tags``: keys and values
in tags; ``nested``: a tag with the key's name for each value; ``python``: keyword arguments."""


def tags_of(text: str) -> tuple[str, ...]:
    """Split markup into its tags, without the white space and brackets of lists between them."""
    parts = _TAG_BOUNDARY.split(text.replace(NAMESPACE, "\x01"))
    tags = (part.replace("\x01", NAMESPACE).strip() for part in parts)
    return tuple(tag for tag in tags if tag.strip("[]{},\0"))


def flexible(text: str, different: str = r"(?=[\w.:-]*?[\dA-Z])[\w.:-]*?") -> str:
    """Return a regular expression of the markup with any white space between its tags; a tag before
    an id may be missing. ``different``: the expression of what differs, by default an id."""
    pattern = ""
    for tag in tags_of(text):
        escaped = regex.escape(tag).replace(regex.escape(ANY), rf"\s*{different}\s*")
        pattern += rf"(?:{escaped})?\s*" if tag.endswith(ANY) else rf"{escaped}\s*"
    return pattern.removesuffix(r"\s*")


@dataclass(frozen=True)
class CallSyntax:
    """The markup of calls."""

    body: BodyKind = "object"
    open: str = ""
    """The text before the name or (``object``) before the JSON."""
    after_name: str = ""
    close: str = ""
    section_open: str = ""
    """The text before the first of several calls."""
    section_close: str = ""
    separator: str = "\n"
    name_key: str = "name"
    arguments_key: str = "arguments"
    other_keys: tuple[str, ...] = ()
    """Further keys of the object, which mean nothing here: ids."""
    quote: str = '"'
    """The delimiter of JSON strings; in any other than ``"`` nothing is escaped."""
    bare_keys: bool = False
    """Whether keys of JSON objects have no quotes."""
    key_open: str = ""
    key_close: str = ""
    value_close: str = ""
    """The texts around keys and values in tags; in ``key_close``, `ANY` is the value's type."""
    wrap: tuple[str, str] = ("", "")
    """The texts around a string with markup (``<![CDATA[``, ``]]>``)."""

    @cached_property
    def openings(self) -> tuple[str, ...]:
        """The tags before a name or an object, in order."""
        return tags_of(self.section_open) + self.own_openings

    @cached_property
    def own_openings(self) -> tuple[str, ...]:
        """The tags that each call begins with."""
        return tags_of(self.open.partition(ANY)[0].removesuffix(NAME_PREFIX))

    @cached_property
    def closings(self) -> tuple[str, ...]:
        """The tags after the arguments, in order, without ``}``."""
        return self.own_closings + tags_of(self.section_close)

    @cached_property
    def key_tag(self) -> str:
        return tags_of(self.key_open)[0] if self.key_open else ""

    @cached_property
    def key_pattern(self) -> regex.Pattern[str]:
        """Matches what is written before a value; groups: the key, and its type if that is written."""
        key = r'([^<>\n"]*?)' if self.key_close.startswith('"') else r"([^<>\n]*?)"
        if self.body == "nested":
            return regex.compile(regex.escape(self.key_open).replace(ANY, r"([^<>/\s][^<>\n]*?)"))
        return regex.compile(flexible(self.key_open) + key + flexible(self.key_close, _TYPE))

    @cached_property
    def header_pattern(self) -> regex.Pattern[str]:
        """Matches a name and what follows it, up to the arguments or the call's end."""
        before = r"[^<>\n]*?" + flexible(self.open.rpartition(ANY)[2]) if ANY in self.open else ""
        ends = [regex.escape(tag) for tag in (self.key_tag, *self.closings) if tag]
        if self.body == "json":
            ends.append(regex.escape("{"))
        after = flexible(self.after_name) or "(?!)"
        name = r"""([^\s<>{}\[\]()"'`,;][^<>{}\[\]()"'\n,;]*?|)"""
        end = f"(?:{after}|(?={'|'.join(ends) or '(?!)'}))"
        before += rf"\s*(?:{regex.escape(NAME_PREFIX)})?"
        return regex.compile(rf"\s*{before}[\"']?{name}[\"']?\s*{end}")

    @cached_property
    def own_closings(self) -> tuple[str, ...]:
        """The tags that each call ends with, without ``}``."""
        return tags_of(self.close.lstrip("}"))

    @cached_property
    def stops(self) -> str:
        """The characters at which a tag may begin."""
        tags = (*self.closings, *self.openings, self.key_tag, self.value_tag, self.wrap[1])
        return "".join(sorted({tag[0] for tag in (*tags, self.quote) if tag and tag != '"'}))

    @cached_property
    def string_run(self) -> regex.Pattern[str]:
        """Matches text of a JSON string up to what may end it."""
        return regex.compile(rf'[^"\\\\{regex.escape(self.stops)}]+')

    @cached_property
    def value_run(self) -> regex.Pattern[str]:
        """Matches text of a value in tags up to what may end it."""
        return regex.compile(rf"[^\n{regex.escape(self.stops)}]+")

    @cached_property
    def wrap_pattern(self) -> regex.Pattern[str]:
        return regex.compile(regex.escape(self.wrap[0]))

    @property
    def drops_newline(self) -> bool:
        """Whether a line break before the end of a value is markup."""
        return self.value_close.startswith("\n")

    @cached_property
    def value_tag(self) -> str:
        return (*tags_of(self.value_close), "")[0]

    @cached_property
    def next_call(self) -> str:
        """A regular expression of the beginning of another call."""
        name = r'\{\s*"' if self.body == "object" else r"""["'\w]"""
        tags = [regex.escape(tag) for tag in self.own_openings or self.openings[:1]]
        return r"\s*".join((*tags, name)) if tags else r"(?!)"

    @cached_property
    def end(self) -> regex.Pattern[str]:
        """Matches where a call ends within a JSON string, as another call follows."""
        return self._end_pattern("(?!)")

    @cached_property
    def last_end(self) -> regex.Pattern[str]:
        """Matches where a call ends within a JSON string at the end of the generation."""
        return self._end_pattern(r"\Z")

    def _end_pattern(self, end: str) -> regex.Pattern[str]:
        tags = [regex.escape(tag) for tag in self.closings]
        ends = [rf"{tag}\s*(?:{self._or(tags[i + 1 :], self.next_call, end)})"
                for i, tag in enumerate(tags)]  # fmt: skip
        return regex.compile("|".join((self.next_call, *ends)))

    @cached_property
    def _value_ends(self) -> Mapping[tuple[bool, bool], regex.Pattern[str]]:
        return {}

    def value_end(self, final: bool, wrapped: bool) -> regex.Pattern[str]:
        """Return a pattern of what may end a value in tags; groups: ``value`` (its end), ``cut`` (the
        call's end), ``key`` (the next key). ``wrapped``: the value began with `wrap`."""
        if (pattern := self._value_ends.get((final, wrapped))) is None:
            end = r"\Z" if final else "(?!)"
            closings = [regex.escape(tag) for tag in self.closings]
            openings = [regex.escape(tag) for tag in self.openings]
            close = (regex.escape(self.wrap[1]) + r"\s*" if wrapped else "") + flexible(
                self.value_close
            )
            after = self._or([regex.escape(self.key_tag), *closings, *openings], end)
            value = rf"(?P<value>{close})(?=\s*(?:{after}))"
            cuts = [rf"{tag}(?=\s*(?:{self._or(closings[i + 1 :] + openings, end)}))"
                    for i, tag in enumerate(closings)]  # fmt: skip
            cuts += [rf"{tag}(?=\s*(?:{openings[i + 1]}))" for i, tag in enumerate(openings[:-1])]
            key = self.key_pattern.pattern.replace("(", "(?P<key>", 1)
            if wrapped:
                cuts, key = [], "(?P<key>(?!))"
            pattern = regex.compile(rf"{value}|(?P<cut>{'|'.join(cuts) or '(?!)'})|{key}")
            assert isinstance(self._value_ends, dict)
            self._value_ends[final, wrapped] = pattern
        return pattern

    @staticmethod
    def _or(patterns: Sequence[str], *more: str) -> str:
        return "|".join((*patterns, *more))

    def encode(self, encoder: MarkupEncoder, recipient: str, arguments: str | None) -> list[int]:
        """Encode a call; with ``arguments`` None only the part before them."""
        markup, text = encoder.encode_markup, encoder.encode_text
        ids = markup((self.section_open + self.open).replace(ANY, "0"))
        if self.body == "object":
            name = json.dumps(recipient, ensure_ascii=False)
            ids += text(f'{{"{self.name_key}": {name}, "{self.arguments_key}": ')
            return (
                ids if arguments is None else ids + text(arguments) + self._encode_end("}", encoder)
            )
        ids += text(recipient) + markup(self.after_name.replace(ANY, "0"))
        if arguments is None:
            return ids
        if self.body == "json" and not self.bare_keys:
            return ids + text(arguments) + self._encode_end("", encoder)
        return ids + self._encode_values(arguments, encoder) + self._encode_end("", encoder)

    def _encode_end(self, end: str, encoder: MarkupEncoder) -> list[int]:
        return encoder.encode_markup(end + self.close + self.section_close)

    def _encode_values(self, arguments: str, encoder: MarkupEncoder) -> list[int]:
        markup, text = encoder.encode_markup, encoder.encode_text
        values = _argument_values(arguments)
        if self.body == "python":
            return text(", ".join(f"{key}={value!r}" for key, value in values.items()))
        if self.body == "json":
            return self._encode_json(values, encoder)
        if self.body == "nested":
            return self._encode_nested(values, encoder)
        ids: list[int] = []
        for key, value in values.items():
            ids += markup(self.key_open) + text(key)
            ids += markup(self.key_close.replace(ANY, _type_word(self.key_close, value)))
            value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            last = key == list(values)[-1]
            twice = last and self.close.startswith("\n")  # it begins another value, too
            ids += text(value)
            ids += markup(self.value_close.removesuffix("\n") if twice else self.value_close)
        return ids

    def _encode_json(self, value: Any, encoder: MarkupEncoder) -> list[int]:
        """Encode JSON with this family's quotes and keys."""
        markup, text = encoder.encode_markup, encoder.encode_text
        if isinstance(value, str):
            return markup(self.quote) + text(value) + markup(self.quote)
        if not isinstance(value, Mapping | list):
            return text(json.dumps(value))
        parts = value.items() if isinstance(value, Mapping) else [("", one) for one in value]
        ids = text("{" if isinstance(value, Mapping) else "[")
        for i, (key, one) in enumerate(parts):
            ids += text(("," if i else "") + (f"{key}:" if key else ""))
            ids += self._encode_json(one, encoder)
        return ids + text("}" if isinstance(value, Mapping) else "]")

    def _encode_nested(self, value: Any, encoder: MarkupEncoder) -> list[int]:
        if not isinstance(value, Mapping | list):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            return encoder.encode_text(text)
        parts = value.items() if isinstance(value, Mapping) else [("item", one) for one in value]
        ids: list[int] = []
        for key, one in parts:
            opening, closing = self.key_open.replace(ANY, key), self.value_close.replace(ANY, key)
            ids += encoder.encode_markup(opening) + self._encode_nested(one, encoder)
            ids += encoder.encode_markup(closing)
        return ids


@dataclass(frozen=True)
class MessageSyntax:
    """The markup of an assistant's message."""

    name: str
    think: str = "<think>"
    think_end: str = "</think>"
    """The tags around reasoning; empty: the family has none."""
    calls: tuple[CallSyntax, ...] = ()
    """The syntax of calls; those after the first are accepted too."""
    ends: tuple[str, ...] = ()
    """Special tokens that end a generation."""
    turns: tuple[str, ...] = ()
    """Special tokens that begin another role's message."""
    ignored: tuple[str, ...] = ()
    """Tags around the answer, or before a message's end, that mean nothing."""
    bare_calls: bool = False
    """Whether a JSON object with name and arguments at the beginning of a line is a call."""
    code_tag: str = ""
    """The tag before a call that is code for the python tool, or JSON."""
    header: tuple[str, str, str] | None = None
    """A tag that begins a message, the tag that ends its header, and a word in that of reasoning."""
    end_space: str = ""
    """White space between an answer and its end."""
    source: str = "table"
    """Where the syntax is from: `agent.formats.protocol.Format.source`."""
    think_open: str = "<think>\n"
    """The exact text that begins reasoning."""
    think_close: str = "\n</think>\n\n"
    """The exact text between reasoning and answer."""

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The tags that begin a call in prose."""
        openings = self.calls[0].openings if self.calls else ()
        openings = tuple(tag for tag in openings if tag[0] != "{")
        return tuple(dict.fromkeys((*openings, *([self.code_tag] if self.code_tag else ()))))

    @cached_property
    def closings(self) -> tuple[str, ...]:
        """The tags that end a call, which mean nothing in prose."""
        tags = [tag for call in self.calls for tag in call.closings]
        ends = (*self.ends, *self.entries)
        return tuple(t for t in dict.fromkeys(tags) if t[0] in "<[]" and t not in ends)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """All tags that have a meaning in prose."""
        thinking = [tag for tag in (self.think, self.think_end) if tag]
        headers = self.header[:1] if self.header else ()
        tags = (*thinking, *self.entries, *self.closings, *self.ignored, *headers)
        return tuple(dict.fromkeys(tags))

    @cached_property
    def tag_start(self) -> regex.Pattern[str]:
        """Matches a character that a tag may begin with."""
        starts = regex.escape("".join({tag[0] for tag in self.tags}))
        return regex.compile(f"[{starts}]" if starts else "(?!)")

    @cached_property
    def tag_pattern(self) -> regex.Pattern[str]:
        """A pattern of what may end prose: any tag, or ``{`` where that may begin a call."""
        longest_first = sorted(self.tags, key=len, reverse=True)
        patterns = [regex.escape(tag) for tag in longest_first] + (
            [r"\{"] if self.bare_calls else []
        )
        return regex.compile("|".join(patterns) or r"(?!)")

    @cached_property
    def markup(self) -> str:
        """All texts of the syntax, to look special tokens up in."""
        parts = (self.think, self.think_end, *self.ignored, self.code_tag)
        texts = [
            "\n".join((c.section_open, c.open, c.after_name, c.close, c.section_close, c.quote,
                       c.key_open, c.key_close, c.value_close))
            for c in self.calls
        ]  # fmt: skip
        return "\n".join((*parts, *texts))

    @cached_property
    def specials(self) -> tuple[str, ...]:
        """The special tokens that a vocabulary for this syntax needs."""
        names = (*self.tags, *self.ends, *self.turns)
        return tuple(name for name in dict.fromkeys(names) if name.endswith((">", "]", "[")))


def code_arguments(code: str) -> str:
    return json.dumps({"code": code}, ensure_ascii=False)


def _type_word(key_close: str, value: object) -> str:
    """The word for a value's type: ``string="true"``, or ``type="number"``."""
    if "string=" in key_close:
        return "true" if isinstance(value, str) else "false"
    from agent.util.json_text import json_type

    return json_type(value).replace("integer", "number")


def _argument_values(arguments: str) -> Mapping[str, Any]:
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    return values if isinstance(values, dict) else {"arguments": arguments}
