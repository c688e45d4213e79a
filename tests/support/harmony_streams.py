"""Streams of token ids for the parser's tests: real ones, mutated ones, and what must hold for all."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openai_harmony import HarmonyEncoding

from agent.formats.harmony.parser import HarmonyParser
from agent.formats.harmony.token_ids import vocabulary
from agent.formats.protocol import Closed, Delta, Kind, Opened, Piece, Repair, Stop
from agent.formats.recipients import Recipients

DATA = json.loads(Path(__file__).with_name("harmony_cases.json").read_text())
CASES: list[dict[str, Any]] = DATA["cases"]
RECIPIENTS = Recipients(DATA["tools"])

SPECIALS = [200006, 200007, 200008, 200005, 200003, 200002, 200012, 199999]
ODD = [200013, 199998, 201087, 201088, 250000, -1, 2**70]
ORDINARY = sorted({token for case in CASES for token in case["tokens"] if 0 <= token < 199_998})
MARKERS = {
    84859: "elephant",
    77378: "umbrella",
    24282: "Monday",
    21271: "guitar",
    10084: "kitchen",
    13655: "winter",
    176328: "garden",
    60139: "yellow",
    13332: "football",
}
"""Words of one token that no header knows: where they end up can be counted."""


def parse(
    encoding: HarmonyEncoding,
    ids: Sequence[int],
    recipients: Recipients | None = RECIPIENTS,
    step: int = 1,
) -> list[Piece]:
    """The pieces, ``step`` ids at a time, adjacent deltas merged."""
    parser = HarmonyParser(encoding, recipients)
    pieces: list[Piece] = []
    for i in range(0, len(ids), step):
        pieces += parser.feed(ids[i : i + step])
    pieces += parser.finish()
    assert parser.feed([200008, 64]) == parser.finish() == []
    out: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Delta) and out and isinstance(out[-1], Delta):
            out[-1] = Delta(out[-1].text + piece.text)
        else:
            out.append(piece)
    return out


def segments(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """As the case file has them: kind, recipient, text."""
    out: list[dict[str, Any]] = []
    for piece in pieces:
        match piece:
            case Opened(kind, recipient, raw):
                called = kind in (Kind.TOOL, Kind.TOOL_UNKNOWN)
                out.append(
                    {
                        "kind": str(kind),
                        "recipient": (recipient or raw) if called else None,
                        "text": "",
                    }
                )
            case Delta(text):
                out[-1]["text"] += text
            case Stop():
                out.append({"kind": "stop", "recipient": None, "text": ""})
    return out


def mutated(rng: random.Random) -> list[int]:
    """A real stream after a few deletions, doublings, swaps and insertions, with markers in it."""
    ids = list(rng.choice(CASES)["tokens"])
    for _ in range(rng.randint(0, 5)):
        i = rng.randrange(len(ids) + 1)
        match rng.randint(0, 4):
            case 0:
                del ids[i : i + 1]
            case 1:
                ids[i:i] = ids[i : i + 1]
            case 2:
                ids.insert(i, rng.choice(SPECIALS if rng.random() < 0.8 else ODD))
            case 3:
                ids.insert(i, rng.choice(ORDINARY))
            case _:
                ids[i : i + 2] = ids[i : i + 2][::-1]
    for marker in rng.sample(sorted(MARKERS), rng.randint(0, 3)):
        ids.insert(rng.randrange(len(ids) + 1), marker)
    return ids


def check(encoding: HarmonyEncoding, ids: Sequence[int], steps: Sequence[int] = (3, 10**6)) -> None:
    """What must hold for any ids at all."""
    vocabulary.cache_clear()  # no token was met before, as in a process that has just begun
    pieces = parse(encoding, ids)
    for step in steps:
        assert parse(encoding, ids, step=step) == pieces, f"other pieces {step} at a time"
    check_order(pieces, len(ids))
    _check_kept(pieces, ids)


def check_order(pieces: Sequence[Piece], length: int) -> None:
    open_, at = False, 0
    for i, piece in enumerate(pieces):
        match piece:
            case Opened():
                assert not open_
                open_ = True
            case Delta(text):
                assert open_ and text
            case Closed(_, start, end, tokens):
                assert open_ and start == at and start <= end <= length and tokens <= end - start
                open_, at = False, end
            case Repair(at=where):
                assert not open_ and 0 <= where <= length
            case Stop():
                assert not open_ and i == len(pieces) - 1
    assert not open_


def _check_kept(pieces: Sequence[Piece], ids: Sequence[int]) -> None:
    """Every marker that was written stands in exactly one place."""
    end = next((piece.at for piece in pieces if isinstance(piece, Stop)), len(ids))
    places = [""]
    for piece in pieces:
        match piece:
            case Opened(raw_recipient=raw):
                places += [raw or "", ""]
            case Delta(text):
                places[-1] += text
            case Repair(text=text):
                places += [text, ""]
    kept = "\0".join(places)
    for token, word in MARKERS.items():
        assert kept.count(word) == list(ids[:end]).count(token), f"{word} is lost or doubled"
