"""Streams of token ids for the parser's tests, real and mutated, and the parser's invariants."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openai_harmony import HarmonyEncoding

from agent.formats.harmony.parser import HarmonyParser
from agent.formats.harmony.token_ids import harmony_vocabulary
from agent.formats.protocol import Closed, Delta, Opened, ParseEvent, Repair, SegmentKind, Stop
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
"""Words of one token that no header contains, so that their occurrences can be counted."""


def parse(
    encoding: HarmonyEncoding,
    ids: Sequence[int],
    recipients: Recipients | None = RECIPIENTS,
    step: int = 1,
) -> list[ParseEvent]:
    """Parse ``step`` ids at a time; adjacent deltas are merged."""
    parser = HarmonyParser(encoding, recipients)
    events: list[ParseEvent] = []
    for i in range(0, len(ids), step):
        events += parser.feed(ids[i : i + step])
    events += parser.finish()
    assert parser.feed([200008, 64]) == parser.finish() == []
    out: list[ParseEvent] = []
    for event in events:
        if isinstance(event, Delta) and out and isinstance(out[-1], Delta):
            out[-1] = Delta(out[-1].text + event.text)
        else:
            out.append(event)
    return out


def segments(events: Sequence[ParseEvent]) -> list[dict[str, Any]]:
    """Kind, recipient and text of each segment, as in the case file."""
    out: list[dict[str, Any]] = []
    for event in events:
        match event:
            case Opened(kind, recipient, raw):
                called = kind in (SegmentKind.TOOL, SegmentKind.TOOL_UNKNOWN)
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
    """A real stream after a few deletions, duplications, swaps and insertions, with markers."""
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
    """Check the invariants for any ids."""
    harmony_vocabulary.cache_clear()  # no token is known, as in a new process
    events = parse(encoding, ids)
    for step in steps:
        assert parse(encoding, ids, step=step) == events, f"other events {step} at a time"
    check_order(events, len(ids))
    _check_markers(events, ids)


def check_order(events: Sequence[ParseEvent], length: int) -> None:
    """Check that segments are contiguous and never nested; ``length``: the number of ids."""
    is_open, at = False, 0
    for i, event in enumerate(events):
        match event:
            case Opened():
                assert not is_open
                is_open = True
            case Delta(text):
                assert is_open and text
            case Closed(_, start, end, tokens):
                assert is_open and start == at and start <= end <= length and tokens <= end - start
                is_open, at = False, end
            case Repair(at=position):
                assert not is_open and 0 <= position <= length
            case Stop():
                assert not is_open and i == len(events) - 1
    assert not is_open


def _check_markers(events: Sequence[ParseEvent], ids: Sequence[int]) -> None:
    """Check that every marker occurs as often in the events as in the ids."""
    end = next((event.at for event in events if isinstance(event, Stop)), len(ids))
    texts = [""]
    for event in events:
        match event:
            case Opened(raw_recipient=raw):
                texts += [raw or "", ""]
            case Delta(text):
                texts[-1] += text
            case Repair(text=text):
                texts += [text, ""]
    output = "\0".join(texts)
    for token, word in MARKERS.items():
        assert output.count(word) == list(ids[:end]).count(token), f"{word} is lost or doubled"
