"""Random streams of markup in text, and the invariants of its parser."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agent.formats.markup.chat_template import ChatTemplate
from agent.formats.markup.default_templates import TEMPLATES
from agent.formats.markup.format import MarkupFormat
from agent.formats.markup.known import SYNTAXES
from agent.formats.markup.parser import MarkupParser
from agent.formats.markup.segments import TokenClasses
from agent.formats.markup.vocabulary import ByteVocabulary, MarkupEncoder
from agent.formats.protocol import Delta, Format, Opened, ParseEvent, Repair, SegmentKind, Stop
from agent.formats.recipients import Recipients
from tests.support.harmony_streams import check_order

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "size": {"type": "number"},
        "on": {"type": "boolean"},
        "list": {"type": "array"},
        "map": {"$ref": "#/$defs/Map"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "level": {"enum": [1, 2]},
    },
    "$defs": {"Map": {"type": "object"}},
}
RECIPIENTS = Recipients(["f", "files__read", "python"], schemas={"f": SCHEMA})

MARKERS = ["elephant", "umbrella", "Monday", "guitar", "kitchen", "winter", "garden", "yellow"]
FRAGMENTS = [
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>"),
    *("<parameter=text>", "<parameter=map>", "<parameter=new>", "</parameter>", "<|python_tag|>"),
    *('{"name": "f", "arguments": {', '{"name": "f", "parameters": {"a": ', '"name"', '"type": '),
    *("{", "}", "}}", "[", "]", '"', "\\", ": ", ", ", '{"arguments": ', ', "name": "x"}', "null"),
    *(
        "\n",
        " ",
        "  \n\n",
        "```",
        "`",
        "~~~\n",
        "<",
        "</",
        "<tool",
        "<fun",
        ";",
        "hello",
        "naïve 🦜",
    ),
    *("<|im_end|>", "<|im_start|>", "<|eot_id|>", "<|endoftext|>"),
]
"""Complete and partial markup, of which streams are made."""


def format_of(name: str, harmony: Format) -> Format:
    """A format by its name: ``harmony``, or a dialect with its default template."""
    if name == "harmony":
        return harmony
    syntax = SYNTAXES[name]
    return MarkupFormat(syntax, ByteVocabulary(syntax.specials), ChatTemplate(TEMPLATES[name]))


class DialectHarness:
    """A dialect with a vocabulary of bytes."""

    def __init__(self, name: str) -> None:
        self.syntax = SYNTAXES[name]
        self.vocabulary = ByteVocabulary(self.syntax.specials)
        self.encoder = MarkupEncoder(self.vocabulary)
        self.alphabet = TokenClasses(self.vocabulary, self.syntax)

    def events(
        self,
        ids: Sequence[int],
        step: int = 1,
        recipients: Recipients | None = RECIPIENTS,
        *,
        thinking: bool = False,
    ) -> list[ParseEvent]:
        """Parse ``step`` ids at a time; adjacent deltas are merged."""
        parser = MarkupParser(self.alphabet, recipients, thinking=thinking)
        events: list[ParseEvent] = []
        for i in range(0, len(ids), step):
            events += parser.feed(ids[i : i + step])
        events += parser.finish()
        assert parser.feed([65]) == parser.finish() == []
        out: list[ParseEvent] = []
        for event in events:
            if isinstance(event, Delta) and out and isinstance(out[-1], Delta):
                out[-1] = Delta(out[-1].text + event.text)
            else:
                out.append(event)
        return out

    def read(self, markup: str, **options: Any) -> list[tuple[str, ...]]:
        """Parse markup, and summarise the events."""
        return summarise(self.events(self.encoder.encode_markup(markup), **options))

    def check(self, ids: Sequence[int], markers: Sequence[str] = ()) -> None:
        """Check the invariants for any ids; ``markers`` are words that occur once each."""
        events = self.events(ids)
        for step in (3, 17, 10**6):
            assert self.events(ids, step) == events, f"other events {step} at a time"
        check_order(events, len(ids))
        end = next((event.at for event in events if isinstance(event, Stop)), len(ids))
        raws = (self.vocabulary.token_bytes(token) or b"" for token in ids[:end])
        written = b"".join(raws).decode("utf-8", "replace")
        output = "\0".join("\0".join(texts) for texts in summarise(events))
        for word in markers:
            assert output.count(word) == written.count(word), f"{word} is lost or doubled"


def summarise(events: Sequence[ParseEvent]) -> list[tuple[str, ...]]:
    """Segments as (kind, text), calls as (kind, name, text), repairs as (rule, text)."""
    out: list[tuple[str, ...]] = []
    for event in events:
        match event:
            case Opened(kind, recipient, raw) if kind in (
                SegmentKind.TOOL,
                SegmentKind.TOOL_UNKNOWN,
            ):
                out.append((str(kind), recipient or raw or "", ""))
            case Opened(kind):
                out.append((str(kind), ""))
            case Delta(text):
                out[-1] = (*out[-1][:-1], out[-1][-1] + text)
            case Repair(rule, _, text):
                out.append((rule, text))
    return out


def random_markup(rng: random.Random) -> tuple[str, list[str]]:
    """A stream of random fragments, and the markers in it, each once."""
    markers = rng.sample(MARKERS, rng.randint(0, 4))
    parts = rng.choices(FRAGMENTS, k=rng.randint(1, 30)) + markers
    rng.shuffle(parts)
    return "".join(parts), markers
