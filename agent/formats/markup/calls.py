"""Reads calls as `CallSyntax` describes them, and streams their arguments as JSON.

Each reader is a generator that yields where it needs more text: the result depends on the text alone,
never on how it came in pieces. JSON streams as it was written. A value in tags has no quotes and
escapes, so a tag in it is ambiguous: it ends the value only where a tag that may come next follows. A
string streams, escaped; any other value is buffered to its end and made JSON of the type in the tool's
schema (`coerce`). Arguments that the end of the generation or of the call cuts off stay without an end,
so that the call fails::

    <function=f>           segment opened
    <parameter=text>       {"text": "
    say "hi"               say \\"hi\\"
    </parameter>           "
    <parameter=count>      , "count":
    5                      (buffered)
    </parameter>           5
    </function>            }
"""

import json
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from typing import Any

import regex

from agent.formats.markup import coerce
from agent.formats.markup.segments import Steps, TextReader
from agent.formats.markup.syntax import CallSyntax, to_json
from agent.formats.protocol import Opened, SegmentKind
from agent.formats.recipients import PYTHON_TOOL

MAX_UNDECIDED_CHARS = 2000
"""Characters that may be buffered until it is clear whether they are a call."""
MAX_NESTING = 64
"""Tags within tags that are read as values."""
ARGUMENT_KEYS = ("arguments", "parameters")

_KEY = regex.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*', regex.DOTALL)
_TOKEN = regex.compile(r'\s+|[^\s"{}\[\],:<`]+|.', regex.DOTALL)
_BARE_KEY = regex.compile(r"([\p{L}\p{N}_$.-]+)\s*:")
_KEYWORD = regex.compile(r"\s*([^\W\d]\w*)\s*=\s*")
_PYTHON_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|"""
_PYTHON_TOKENS = {
    "": regex.compile(r"""[^'"()\[\]{},]+|."""),
    **{quote: regex.compile(rf"[^{quote}\\]+|\\.|{quote}", regex.DOTALL) for quote in ("'", '"')},
}
"""A piece of a value outside of a string, and within one, by the quote that ends it."""
_PYTHON_WORD = regex.compile(_PYTHON_STRING + r"\w+|.", regex.DOTALL)
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
"""JSON of Python's constants."""
_PYTHON_CONSTANTS = {word: constant for constant, word in _CONSTANTS.items()}


class CallReader(TextReader):
    """Reads one call after its tags, and after its name where that is not in the body."""

    def __init__(
        self, parent: TextReader, syntax: CallSyntax, start: int, name: str | None = None
    ) -> None:
        """``parent``: the reader of the text around it; ``start``: the position of its first token."""
        self._token_classes, self._recipients = parent._token_classes, parent._recipients
        self._buffer, self._segments = parent._buffer, parent._segments
        self.syntax, self.start = syntax, start
        self.raw = ""
        """The text so far, if it may be prose."""
        self.ended_by_tag = False
        """Whether the call's own last tag has been read."""
        self._tags = tuple(t for t in (*syntax.closings, *syntax.openings) if t[0] != "{")
        self._tag_starts = frozenset(tag[0] for tag in self._tags)
        self._unexpected: list[str] = []
        self._is_open = False
        self._ending = ""
        """JSON that ends the arguments if the call ends here; nothing where they are incomplete."""
        if name is not None:
            self._open_segment(name)

    def read(self) -> Steps:
        """Read it; return ``ended``, ``prose`` (`raw` is not a call), or None: the generation ended."""
        raise NotImplementedError
        yield

    def close(self, complete: bool, *, end: int | None = None) -> None:
        """End the call; ``complete``: by the model. ``end``: as in `SegmentWriter.close`."""
        if not self._is_open:
            self._open_segment("")
        self._segments.delta(self._ending)
        if unexpected := "".join(self._unexpected).strip():
            self._segments.repair("call_text", self.start, unexpected)
        self._segments.close(complete, content_end=max(self._buffer.last_position, 0), end=end)

    def _open_segment(self, name: str, *, json: bool = True) -> None:
        self._is_open = True
        self._recipient = self._recipients.resolve_recipient(name) if name else None
        kind = SegmentKind.TOOL if self._recipient else SegmentKind.TOOL_UNKNOWN
        self._segments.open(Opened(kind, self._recipient, name or None, json=json), self.start)

    # --- text -------------------------------------------------------------------------------------

    def _take_until(self, stops: Container[str]) -> str:
        """Take the first character and those up to the next one of ``stops``."""
        text = self._buffer.text
        return self._take(next((i for i, c in enumerate(text) if i and c in stops), len(text)))

    def _write_escaped(self, text: str) -> None:
        self._segments.delta(to_json(text)[1:-1])

    def _at_tag(self) -> Steps:
        """Whether one of the call's tags begins here; a tag that is cut off is taken."""
        while not (text := self._buffer.text).startswith(self._tags):
            if not text or not any(tag.startswith(text) for tag in self._tags):
                return False
            if self._buffer.final:
                self._unexpected.append(self._take(len(text)))
                return True
            yield
        return True

    # --- the end ----------------------------------------------------------------------------------

    def _read_end(self, complete: bool = True) -> Steps:
        """Read the tags after the arguments, complete or not; any of them may be missing."""
        if not complete and not self._buffer.text.strip():
            return None
        own = self.syntax.own_closings
        braces = 0 if isinstance(self, ObjectReader) else self.syntax.close.count("}")
        if not own and not braces:
            self.ended_by_tag = True
            return "ended"
        while text := (yield from self._skip_space()):
            if text[0] == "}" and braces:
                braces -= 1
                self.ended_by_tag = not own and not braces
                self._take(1)
            elif text[0] in "}]" and not text.startswith(self._tags):
                self._unexpected.append(self._take(1))
            elif own and (yield from self._at_tag()):
                tag = next((tag for tag in own if self._buffer.text.startswith(tag)), None)
                if tag is None:
                    break
                self._take(len(tag))
                own = own[own.index(tag) + 1 :]
                self.ended_by_tag = not own
            else:
                break
            if self.ended_by_tag:
                return "ended"
        text = self._buffer.text
        if not text.strip():
            return None
        if not text.startswith(self.syntax.openings or ("{",)) and text[0] != "{":
            self._segments.repair("call_unclosed", self._buffer.next_position)
        return "ended"


class JsonReader(CallReader):
    """Reads arguments as JSON; they may have other quotes, and keys without quotes."""

    def read(self) -> Steps:
        complete = yield from self._read_arguments()
        return (yield from self._read_end(complete))

    def _read_arguments(self) -> Steps:
        """Read an object, or a string that contains one; return whether the arguments are complete."""
        text = yield from self._skip_space()
        if not text:
            return False
        if text[0] == "{":
            return (yield from self._read_value(self._write))
        pieces: list[str] = []
        complete = yield from self._read_value(pieces.append)
        self._write(_unpack_arguments("".join(pieces)))
        return complete

    def _write(self, text: str) -> None:
        # Before the call is open, another segment may be: that of the text in front of it.
        (self._segments.delta if self._is_open else self._segments.early.append)(text)

    def _read_value(self, write: Callable[[str], None]) -> Steps:
        """Read one value; return whether it is complete, and was not ended by a tag."""
        syntax, depth = self.syntax, 0
        while text := (yield from self._more()):
            if text[0] in self._tag_starts and (yield from self._at_tag()):
                return False
            quote = next((q for q in {'"', syntax.quote} if text.startswith(q)), None)
            if quote is None and syntax.quote.startswith(text) and not self._buffer.final:
                yield
                continue
            if quote is not None:
                self._take(len(quote))
                write('"')
                if not (yield from self._read_string(quote, write)):
                    return False
                write('"')
            elif text[0] in "}],:" and not depth:
                return True
            elif text[0] in "{[}]":
                depth += 1 if text[0] in "{[" else -1
                write(self._take(1))
            elif syntax.bare_keys and (key := (yield from self._match(_BARE_KEY))):
                write(to_json(key[1]))
                self._take(len(key[1]))
            else:
                found = _TOKEN.match(self._buffer.text)
                assert found is not None
                word = self._take(found.end())
                write(_CONSTANTS.get(word, word) if syntax.bare_keys else word)
                continue
            if not depth:
                return True
        return False

    def _read_string(self, quote: str, write: Callable[[str], None]) -> Steps:
        """Read to the string's end; return False if a tag ends it, as only another call follows."""
        syntax, texts = self.syntax, None
        if self._is_open and write == self._write:
            texts = self._token_classes.json if quote == '"' else self._token_classes.strings
        while text := (yield from self._more(texts)):
            if text.startswith(quote):
                self._take(len(quote))
                return True
            if text[0] in self._tag_starts:
                if (yield from self._match(*syntax.string_ends)):
                    return False
                text = self._buffer.text
            if quote != '"':
                if quote.startswith(text) and not self._buffer.final:
                    yield
                    continue
                write(to_json(self._take_until(syntax.stops))[1:-1])
            elif text[0] == "\\":
                if len(text) == 1 and not self._buffer.final:
                    yield
                    continue
                write(self._take(2))
            else:
                write(self._take_until(syntax.stops + '"\\'))
        return False


class ObjectReader(JsonReader):
    """Reads an object with name and arguments, from its ``{`` on."""

    def __init__(self, *arguments: Any, bare: bool = False) -> None:
        """``bare``: the call has no tags; without name and arguments it is prose."""
        super().__init__(*arguments)
        self._bare = bare
        self._name: str | None = None
        self._has_arguments = False
        if bare:
            self._tags, self._tag_starts = (), frozenset()

    def _take(self, count: int) -> str:
        text = super()._take(count)
        if not self._is_open:
            self.raw += text
        return text

    def read(self) -> Steps:
        self._take(1)
        complete = yield from self._read_object()
        if not self._is_open:
            self._ending = self.raw.rstrip()
            self._segments.early.clear()
        if self._bare and not self._is_open:
            return "prose"
        if self._bare:
            return "ended" if complete else None
        return (yield from self._read_end(complete))

    def _read_object(self) -> Steps:
        """Read the object's keys and values; return whether it is complete."""
        while (yield from self._skip_space()):
            may_be_prose = self._bare and not self._is_open
            if may_be_prose and (len(self.raw) > MAX_UNDECIDED_CHARS or self._unexpected):
                return False
            if (yield from self._at_tag()):
                return False
            key = yield from self._match(_KEY, limit=MAX_UNDECIDED_CHARS)
            if key is None:
                character = self._take(1)
                if character == "}":
                    return True
                if character != ",":
                    self._unexpected.append(character)
                continue
            self._take(key.end())
            if not (yield from self._read_member(_parse_string(f'"{key[1]}"') or "")):
                return False
        return False

    def _read_member(self, key: str) -> Steps:
        syntax = self.syntax
        if key in (syntax.arguments_key, *ARGUMENT_KEYS) and not self._has_arguments:
            self._has_arguments = bool((yield from self._skip_space()))
            if not self._has_arguments:
                return False
            if self._name is not None and not self._is_open:
                self._open_segment(self._name)
            return (yield from self._read_arguments())
        pieces: list[str] = []
        complete = yield from self._read_value(pieces.append)
        value = "".join(pieces)
        if key == syntax.name_key and self._name is None:
            self._name = _parse_string(value) if complete else None
            if self._name is None:
                self._unexpected.append(value)
            elif not self._bare or self._has_arguments:
                self._open_segment(self._name)
        elif key not in syntax.other_keys and (key, value.strip()) != ("type", '"function"'):
            self._unexpected.append(f'"{key}": {value.strip()}')
        return complete

    def close(self, complete: bool, *, end: int | None = None) -> None:
        if not self._is_open and not complete:
            self._segments.repair("call_cut", self.start, self._ending)
            return
        if not self._is_open:  # a call without a name: its result will say so
            self._unexpected = []
        super().close(complete, end=end)


class TagReader(CallReader):
    """Reads keys and values in tags."""

    def read(self) -> Steps:
        self._schema = self._recipients.argument_schema(self._recipient or "")
        properties = self._schema.get("properties")
        declared = properties if isinstance(properties, Mapping) else {}
        seen: set[str] = set()
        self._ending = "{}"
        while (yield from self._skip_space()):
            if key := (yield from self._match(self.syntax.key_pattern)):
                self._take(key.end())
                name = key["key"].strip().strip("\"'")
                self._segments.delta(f"{', ' if seen else '{'}{to_json(name)}: ")
                seen.add(name)
                self._ending, left = "", declared.keys() - seen
                if not (yield from self._read_value(key, declared.get(name), left)):
                    break
                self._ending = "}"
            elif (text := self._buffer.text).startswith(self._tags):
                break
            elif self._buffer.final and (
                text.startswith(self.syntax.key_tag)
                or any(tag.startswith(text) for tag in (self.syntax.key_tag, *self._tags))
            ):
                self._unexpected.append(self._take(len(text)))  # a tag that is cut off
                self._ending = ', "' if seen else '{"'
                return None
            elif (yield from self._at_tag()):
                break
            else:
                self._unexpected.append(self._take_until(self._tag_starts))
                while (text := (yield from self._more())) and text[0] not in self._tag_starts:
                    self._unexpected.append(self._take_until(self._tag_starts))
        if self._ending == "{}" and not self._buffer.text.strip():
            self._ending = ""  # not a tag so far
        return (yield from self._read_end())

    def _read_value(self, key: regex.Match[str], schema: Any, next_names: Container[str]) -> Steps:
        """Read a value to its end; return False if the call's end or the generation's cut it off."""
        syntax, types = self.syntax, coerce.schema_types(schema, self._schema)
        if word := key.groupdict().get("type"):
            types = _STRING if word in ("true", "string") else coerce.WRITTEN
        pieces: list[str] = []
        streams = types <= _STRING  # a value that is a string for certain is its text itself
        self._segments.delta('"' * streams)
        write = self._write_escaped if streams else pieces.append
        texts = self._token_classes.strings if streams else None
        pending = ""
        """A line break that does not belong to the value if its end follows."""
        if syntax.key_close.endswith("\n") and (yield from self._more()).startswith("\n"):
            self._take(1)
        before = yield from self._match(regex.compile(regex.escape(syntax.wrap[0])))
        wrapped = bool(before and self._take(before.end()))
        tag, ends = syntax.ends_of_value(key["key"], wrapped=wrapped)
        while text := (yield from self._more(None if pending else texts)):
            end = None
            if text[0] in syntax.stops:
                end = yield from self._match(*ends)
                text = self._buffer.text
            if end and (name := end["key"]) is not None and not (pending and name in next_names):
                end = None
            if end is not None:
                if end["cut"] is not None:
                    break
                self._segments.delta('"' if streams else self._coerced("".join(pieces), types))
                if end["value"] is not None:
                    self._take(len(end["value"]))
                else:
                    self._segments.repair("parameter_unclosed", self._buffer.next_position)
                return True
            if self._buffer.final and any(one.startswith(text) for one in (tag, *self._tags)):
                self._unexpected.append(self._take(len(text)))
                break
            if text[0] == "\n" and syntax.value_close.startswith("\n"):
                write(pending)
                pending = self._take(1)
            else:
                write(pending + self._take_until(syntax.stops + "\n"))
                pending = ""
        if not streams:
            self._segments.delta(json.dumps("".join(pieces))[:-1])
        return False

    _coerced = staticmethod(coerce.coerce_value)


class NestedReader(TagReader):
    """Reads values in tags that have the keys' names, and may have such tags in them."""

    @staticmethod
    def _coerced(text: str, types: coerce.Types) -> str:
        if not text.strip() and types in (_ARRAY, _OBJECT):
            return "[]" if types == _ARRAY else "{}"
        return coerce.coerce_value(text, types)

    def _read_value(
        self, key: regex.Match[str], schema: Any, next_names: Container[str] = (), depth: int = 0
    ) -> Steps:
        inner = yield from self._match(self.syntax.key_pattern)
        if inner is None or depth >= MAX_NESTING:
            return (yield from super()._read_value(key, schema, next_names))
        if not (yield from self._read_inner(inner, schema, depth + 1)):
            return False
        tag, (pattern, _) = self.syntax.ends_of_value(key["key"], wrapped=False)
        if closing := (yield from self._match(pattern, limit=len(tag))):
            self._take(closing.end())
        return closing or not (self._buffer.final and tag.startswith(self._buffer.text))

    def _read_inner(self, key: regex.Match[str] | None, schema: Any, depth: int) -> Steps:
        """Read tags within a value from this one on, as object or list; return whether they ended."""
        assert key is not None
        items, separator = key["key"] == "item", ""
        group = "items" if items else "properties"
        within = schema.get(group) if isinstance(schema, Mapping) else None
        while key is not None:
            self._take(key.end())
            separator = separator or ("[" if items else "{")
            self._segments.delta(separator + ("" if items else f"{to_json(key['key'])}: "))
            separator, one = ", ", within
            if not items:
                one = within.get(key["key"]) if isinstance(within, Mapping) else None
            if not (yield from self._read_value(key, one, depth=depth)):
                return False
            yield from self._skip_space()
            key = yield from self._match(self.syntax.key_pattern)
        text = self._buffer.text
        if not text or (self._buffer.final and not text.startswith(self._tags)):
            return False
        self._segments.delta("]" if items else "}")
        return True


class PythonReader(CallReader):
    """Reads keyword arguments as Python writes them, to the closing parenthesis."""

    def read(self) -> Steps:
        count = 0
        while True:
            if keyword := (yield from self._match(_KEYWORD)):
                self._take(keyword.end())
            value, end = yield from self._read_value()
            if keyword is not None:
                self._segments.delta(f"{', ' if count else '{'}{to_json(keyword[1])}: ")
                count += 1
                self._segments.delta(_python_value(value) if end else json.dumps(value)[:-1])
            elif value.strip():
                self._unexpected.append(value)
            if not end:
                return (yield from self._read_end(False))
            if end == ")":
                self._segments.delta("}" if count else "{}")
                return (yield from self._read_end())

    def _read_value(self) -> Steps:
        """Read to the comma or parenthesis that ends a value; return it and that character."""
        pieces: list[str] = []
        depth, quote = 0, ""
        while text := (yield from self._more()):
            if not quote and (yield from self._at_tag()):
                break
            token = _PYTHON_TOKENS[quote].match(text, partial=not self._buffer.final)
            if token is None:
                break
            if token.partial:
                yield
                continue
            piece = self._take(token.end())
            if quote or piece in ("'", '"'):
                quote = "" if piece == quote else quote or piece
            elif piece in (")", ",") and not depth:
                return "".join(pieces), piece
            else:
                depth += (piece in "([{") - (piece in ")]}")
            pieces.append(piece)
        if self._buffer.final:
            pieces.append(self._take(len(self._buffer.text)))
        return "".join(pieces), ""


class MalformedReader(CallReader):
    """Reads unknown text after a call's tag: prose, unless the tag that ends a call follows."""

    def read(self) -> Steps:
        entry, ends = self.syntax.openings[0], self.syntax.closings[-1:]
        while True:
            text = self._buffer.text
            end, next_call = text.find(ends[0]) if ends else -1, text.find(entry)
            if end >= 0 and not 0 <= next_call < end:
                self._ending = self._take(end)
                self._take(len(ends[0]))
                self.ended_by_tag = True
                return "ended"
            if self._buffer.final or next_call >= 0 or len(text) > MAX_UNDECIDED_CHARS or not ends:
                return "prose"
            yield


class CodeReader(CallReader):
    """Reads code for the python tool; only the end of the generation ends it."""

    def read(self) -> Steps:
        self._open_segment(PYTHON_TOOL, json=False)
        while True:
            self._segments.delta(self._take(len(self._buffer.text)))
            yield


READERS: Mapping[str, type[CallReader]] = {
    "object": ObjectReader, "json": JsonReader, "tags": TagReader, "nested": NestedReader,
    "python": PythonReader,
}  # fmt: skip

_STRING, _ARRAY, _OBJECT = {"string"}, {"array"}, {"object"}


def _python_value(text: str) -> str:
    """A Python literal as JSON; any other text becomes a string."""
    words = []
    for word in _PYTHON_WORD.findall(text):
        if word[0] in "'\"":
            word = word.replace("\n", "\\n").replace("\r", "\\r")
        words.append(_PYTHON_CONSTANTS.get(word, word))
    with suppress(ValueError):
        if len(words) == 1 or len(text) <= coerce.MAX_LITERAL_CHARS:
            return to_json(coerce.parse_literal("".join(words).strip()))
    return to_json(text.strip())


def _parse_string(text: str) -> str | None:
    with suppress(ValueError, RecursionError):
        value = json.loads(text, strict=False)
        if isinstance(value, str):
            value.encode()  # a lone surrogate is not text
            return value
    return None


def _unpack_arguments(text: str) -> str:
    """Return arguments that were written as a string that contains them, or as null."""
    if text.strip() == "null":
        return ""
    inner = _parse_string(text)
    return inner if inner is not None and inner.lstrip().startswith("{") else text
