"""The syntax of the messages of a family of models, as data: the inverse of its chat template.

A `MessageSyntax` holds the exact texts around reasoning, answer and calls. The parser reads them with
any white space between tags and whether a tag is one special id or spelled in ordinary tokens, as
finetunes do both; renderers write them exactly. A call consists of::

    section_open  open NAME after_name BODY close  open NAME after_name BODY close  section_close

`agent.formats.markup.derive` finds the texts in a chat template; `known` has those of families whose
templates do not show them; `response_template` reads them from Hugging Face's form
(https://huggingface.co/docs/transformers/chat_response_parsing).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import regex

from agent.formats.markup.chat_template import NAMESPACE
from agent.formats.markup.vocabulary import MarkupEncoder
from agent.util.json_text import json_type

ANY = "\0"
"""Stands for text that differs from call to call: a number, an id, a type."""
NAME_PREFIX = "functions."
"""Kimi K2 puts this before the name; it may be missing."""
_TAG_BOUNDARY = regex.compile(r"(?<=[>\]\0])\s*(?=[<\[\x01])|\s*\n\s*")

_TYPE = "(?P<type>true|false|string|number|integer|boolean|array|object|null)"

BodyKind = Literal["object", "json", "tags", "nested", "python"]
"""``object``: JSON with name and arguments; ``json``: the arguments as JSON; ``tags``: keys and values
in tags; ``nested``: a tag with the key's name for each value; ``python``: keyword arguments."""
Patterns = tuple[regex.Pattern[str], regex.Pattern[str]]
"""A pattern for the middle of a generation, and one for its end."""


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


def to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _escape(*tags: str) -> list[str]:
    return [regex.escape(tag) for tag in tags if tag]


def _or(*patterns: str) -> str:
    return "|".join(patterns) or "(?!)"


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

    @property
    def name_tag(self) -> str:
        """The tag directly before a name; empty if the name is in an object."""
        return self.openings[-1] if self.body != "object" and self.openings else ""

    @cached_property
    def closings(self) -> tuple[str, ...]:
        """The tags after the arguments, in order, without ``}``."""
        return self.own_closings + tags_of(self.section_close)

    @cached_property
    def key_tag(self) -> str:
        return tags_of(self.key_open)[0] if self.key_open else ""

    @cached_property
    def key_pattern(self) -> regex.Pattern[str]:
        """Matches what is written before a value; groups: ``key``, and ``type`` if that is written."""
        key = r'(?P<key>[^<>\n"]*?)' if self.key_close.startswith('"') else r"(?P<key>[^<>\n]*?)"
        if self.body == "nested":
            opening, key = regex.escape(self.key_open), r"(?P<key>[^<>/\s][^<>\n]*?)"
            return regex.compile(opening.replace(regex.escape(ANY), key, 1))
        return regex.compile(flexible(self.key_open) + key + flexible(self.key_close, _TYPE))

    @cached_property
    def header_pattern(self) -> regex.Pattern[str]:
        """Matches a name and what follows it, up to the arguments or the call's end."""
        before = r"[^<>\n]*?" + flexible(self.open.rpartition(ANY)[2]) if ANY in self.open else ""
        ends = _escape(self.key_tag, *self.closings, "{" if self.body == "json" else "")
        after = flexible(self.after_name) or "(?!)"
        name = r"""([^\s<>{}\[\]()"'`,;][^<>{}\[\]()"'\n,;]*?|)"""
        before += rf"\s*(?:{regex.escape(NAME_PREFIX)})?"
        return regex.compile(rf"\s*{before}[\"']?{name}[\"']?\s*(?:{after}|(?={_or(*ends)}))")

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
    def value_tag(self) -> str:
        return (*tags_of(self.value_close), "")[0]

    @cached_property
    def next_call(self) -> str:
        """A regular expression of the beginning of another call."""
        name = r'\{\s*"' if self.body == "object" else r"""["'\w]"""
        tags = _escape(*(self.own_openings or self.openings[:1]))
        return r"\s*".join((*tags, name)) if tags else r"(?!)"

    @cached_property
    def string_ends(self) -> Patterns:
        """Patterns of where a call ends within a JSON string, as another call follows."""
        tags = _escape(*self.closings)

        def pattern(end: str) -> regex.Pattern[str]:
            ends = (rf"{tag}\s*(?:{_or(*tags[i:], self.next_call, end)})"
                    for i, tag in enumerate(tags, 1))  # fmt: skip
            return regex.compile(_or(self.next_call, *ends))

        return pattern("(?!)"), pattern(r"\Z")

    def ends_of_value(self, key: str, *, wrapped: bool) -> tuple[str, Patterns]:
        """Return the tag after a key's value, and patterns of what may end it; groups: ``value`` (its
        end), ``cut`` (the call's end), ``key`` (the next key). ``wrapped``: it began with `wrap`."""
        if self.body != "nested":
            return self.value_tag, self._value_ends[wrapped]
        tag = self.value_close.replace(ANY, key)
        pattern = regex.compile(rf"(?P<value>{regex.escape(tag)})|(?P<cut>(?!))|(?P<key>(?!))")
        return tag, (pattern, pattern)

    @cached_property
    def _value_ends(self) -> tuple[Patterns, Patterns]:
        closings, openings = _escape(*self.closings), _escape(*self.openings)
        close, key_tag = flexible(self.value_close), regex.escape(self.key_tag)

        def pattern(wrapped: bool, end: str) -> regex.Pattern[str]:
            before = regex.escape(self.wrap[1]) + r"\s*" if wrapped else ""
            after = _or(key_tag, *closings, *openings, end)
            value = rf"(?P<value>{before}{close})(?=\s*(?:{after}))"
            if wrapped:
                return regex.compile(rf"{value}|(?P<cut>(?!))|(?P<key>(?!))")
            cuts = [rf"{tag}(?=\s*(?:{_or(*closings[i:], *openings, end)}))"
                    for i, tag in enumerate(closings, 1)]  # fmt: skip
            cuts += [rf"{tag}(?=\s*(?:{following}))" for tag, following in pairwise(openings)]
            return regex.compile(rf"{value}|(?P<cut>{_or(*cuts)})|{self.key_pattern.pattern}")

        plain, wrapped = ((pattern(w, "(?!)"), pattern(w, r"\Z")) for w in (False, True))
        return plain, wrapped

    def encode(self, encoder: MarkupEncoder, recipient: str, arguments: str | None) -> list[int]:
        """Encode a call; with ``arguments`` None only the part before them."""
        markup, text = encoder.encode_markup, encoder.encode_text
        ids = markup((self.section_open + self.open).replace(ANY, "0"))
        if self.body == "object":
            ids += text(f'{{"{self.name_key}": {to_json(recipient)}, "{self.arguments_key}": ')
        else:
            ids += text(recipient) + markup(self.after_name.replace(ANY, "0"))
        if arguments is None:
            return ids
        if self.body == "object" or (self.body == "json" and not self.bare_keys):
            ids += text(arguments)
        else:
            ids += self._encode_values(_argument_values(arguments), encoder)
        return ids + markup("}" * (self.body == "object") + self.close + self.section_close)

    def _encode_values(self, values: Any, encoder: MarkupEncoder) -> list[int]:
        """Encode an object or, within one, any value."""
        markup, text = encoder.encode_markup, encoder.encode_text
        if self.body == "python":
            words = {
                k: to_json(v) if isinstance(v, dict | list) else repr(v) for k, v in values.items()
            }
            return text(", ".join(f"{key}={word}" for key, word in words.items()) + ")")
        if self.body == "json":
            return self._encode_json(values, encoder)
        if not isinstance(values, Mapping | list):
            return text(values if isinstance(values, str) else to_json(values))
        parts = values.items() if isinstance(values, Mapping) else [("item", v) for v in values]
        ids: list[int] = []
        for key, value in parts:
            if self.body == "nested":
                opening, closing = (t.replace(ANY, key) for t in (self.key_open, self.value_close))
                ids += markup(opening) + self._encode_values(value, encoder) + markup(closing)
                continue
            ids += markup(self.key_open) + text(key)
            kind = json_type(value).replace("integer", "number")
            if "string=" in self.key_close:  # ``string="true"`` instead of ``type="string"``
                kind = to_json(isinstance(value, str))
            ids += markup(self.key_close.replace(ANY, kind))
            ids += text(value if isinstance(value, str) else to_json(value))
            # The line break before the call's end begins that, too.
            twice = key == list(values)[-1] and self.close.startswith("\n")
            ids += markup(self.value_close.removesuffix("\n") if twice else self.value_close)
        return ids

    def _encode_json(self, value: Any, encoder: MarkupEncoder) -> list[int]:
        """Encode JSON with this family's quotes and keys."""
        markup, text = encoder.encode_markup, encoder.encode_text
        if isinstance(value, str):
            return markup(self.quote) + text(value) + markup(self.quote)
        if not isinstance(value, Mapping | list):
            return text(json.dumps(value))
        is_object = isinstance(value, Mapping)
        ids = text("{" if is_object else "[")
        for i, one in enumerate(value):
            ids += text("," * (i > 0) + f"{one}:" * is_object)
            ids += self._encode_json(value[one] if is_object else one, encoder)
        return ids + text("}" if is_object else "]")


@dataclass(frozen=True)
class MessageSyntax:
    """The markup of an assistant's message."""

    name: str
    think_open: str = "<think>\n"
    """The exact text that begins reasoning; empty: the family has none, or it has no beginning."""
    think_close: str = "\n</think>\n\n"
    """The exact text between reasoning and answer."""
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

    @cached_property
    def think(self) -> str:
        """The tag that begins reasoning, if any."""
        return (*tags_of(self.think_open), "")[0]

    @cached_property
    def think_end(self) -> str:
        return (*tags_of(self.think_close), "")[0]

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The tags that begin a call in prose."""
        openings = (tag for call in self.calls[:1] for tag in call.openings if tag[0] != "{")
        return tuple(dict.fromkeys((*openings, *filter(None, [self.code_tag]))))

    @cached_property
    def closings(self) -> tuple[str, ...]:
        """The tags that end a call, which mean nothing in prose."""
        tags = dict.fromkeys(tag for call in self.calls for tag in call.closings)
        return tuple(t for t in tags if t[0] in "<[]" and t not in (*self.ends, *self.entries))

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """All tags that have a meaning in prose."""
        tags = (self.think, self.think_end, *self.entries, *self.closings, *self.ignored)
        return tuple(dict.fromkeys(filter(None, (*tags, *(self.header or ())[:1]))))

    @cached_property
    def tag_pattern(self) -> regex.Pattern[str]:
        """A pattern of what may end prose: any tag, or ``{`` where that may begin a call."""
        longest_first = sorted(self.tags, key=len, reverse=True)
        return regex.compile(_or(*_escape(*longest_first, "{" if self.bare_calls else "")))

    @cached_property
    def markup(self) -> str:
        """All texts of the syntax, to look special tokens up in."""
        parts = [self.think, self.think_end, *self.ignored, self.code_tag]
        for c in self.calls:
            parts += (c.section_open, c.open, c.after_name, c.close, c.section_close, c.quote,
                      c.key_open, c.key_close, c.value_close)  # fmt: skip
        return "\n".join(parts)

    @cached_property
    def specials(self) -> tuple[str, ...]:
        """The special tokens that a vocabulary for this syntax needs."""
        names = (*self.tags, *self.ends, *self.turns)
        return tuple(name for name in dict.fromkeys(names) if name.endswith((">", "]", "[")))


def _argument_values(arguments: str) -> Mapping[str, Any]:
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    return values if isinstance(values, dict) else {"arguments": arguments}
