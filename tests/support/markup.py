"""Streams of the families that write markup over text, and what must hold for all of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agent.formats.markup.dialects import FAMILIES
from agent.formats.markup.parser import Alphabet, MarkupParser
from agent.formats.markup.vocabulary import Bytes, Encoder
from agent.formats.protocol import Delta, Kind, Opened, Piece, Repair, Stop
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
"""What streams are made of, whole and in halves."""


class Reader:
    """A family over the vocabulary of bytes."""

    def __init__(self, name: str) -> None:
        self.family = FAMILIES[name]
        self.vocabulary = Bytes(self.family.specials)
        self.encoder = Encoder(self.vocabulary)
        self.alphabet = Alphabet(self.vocabulary, self.family)

    def pieces(
        self,
        ids: Sequence[int],
        step: int = 1,
        recipients: Recipients | None = RECIPIENTS,
        *,
        thinking: bool = False,
    ) -> list[Piece]:
        """The pieces, ``step`` ids at a time, adjacent deltas merged."""
        parser = MarkupParser(self.alphabet, recipients, thinking=thinking)
        pieces: list[Piece] = []
        for i in range(0, len(ids), step):
            pieces += parser.feed(ids[i : i + step])
        pieces += parser.finish()
        assert parser.feed([65]) == parser.finish() == []
        out: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, Delta) and out and isinstance(out[-1], Delta):
                out[-1] = Delta(out[-1].text + piece.text)
            else:
                out.append(piece)
        return out

    def read(self, markup: str, **options: Any) -> list[tuple[str, ...]]:
        """Segments as (kind, text), calls as (kind, name, text); repairs as (rule, text)."""
        return shape(self.pieces(self.encoder.markup(markup), **options))

    def check(self, ids: Sequence[int], markers: Sequence[str] = ()) -> None:
        """What must hold for any ids at all; ``markers``: words of which each was written once."""
        pieces = self.pieces(ids)
        for step in (3, 17, 10**6):
            assert self.pieces(ids, step) == pieces, f"other pieces {step} at a time"
        check_order(pieces, len(ids))
        end = next((piece.at for piece in pieces if isinstance(piece, Stop)), len(ids))
        raws = (self.vocabulary.raw(token) or b"" for token in ids[:end])
        written = b"".join(raws).decode("utf-8", "replace")
        kept = "\0".join("\0".join(texts) for texts in shape(pieces))
        for word in markers:
            assert kept.count(word) == written.count(word), f"{word} is lost or doubled"


def shape(pieces: Sequence[Piece]) -> list[tuple[str, ...]]:
    out: list[tuple[str, ...]] = []
    for piece in pieces:
        match piece:
            case Opened(kind, recipient, raw) if kind in (Kind.TOOL, Kind.TOOL_UNKNOWN):
                out.append((str(kind), recipient or raw or "", ""))
            case Opened(kind):
                out.append((str(kind), ""))
            case Delta(text):
                out[-1] = (*out[-1][:-1], out[-1][-1] + text)
            case Repair(rule, _, text):
                out.append((rule, text))
    return out


def made(rng: random.Random) -> tuple[str, list[str]]:
    """A stream of fragments, and the markers that are in it, each once."""
    markers = rng.sample(MARKERS, rng.randint(0, 4))
    parts = rng.choices(FRAGMENTS, k=rng.randint(1, 30)) + markers
    rng.shuffle(parts)
    return "".join(parts), markers
