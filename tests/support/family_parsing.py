"""Parses what models of a family write, and compares the segments with what they mean."""

import ast
import functools
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.formats.detect import template_format
from agent.formats.protocol import Closed, Delta, Opened, ParseEvent, Repair, SegmentKind, Stop
from agent.formats.recipients import Recipients
from tests.support.template_families import (
    FAMILIES,
    SCHEMA,
    TOOL_NAMES,
    AssistantMessage,
    source,
    written_text,
)

TOOL_KINDS = (SegmentKind.TOOL, SegmentKind.TOOL_UNKNOWN)
ANSWER = (
    "The sum: 5 < 7 && x > y.\n\n- naïve 🦜\n- `f(a[0], {})`\n\n```python\nprint('hi')\n```\nDone."
)
THOUGHT = 'First 1 < 2.\n\nThen "quote" it: {a} [b].'
WORDS = "I look it up for you:"
QUOTED = '<tool_call>\n{"name": "get_weather", "arguments": {"text": "x"}}\n</tool_call>'
WEATHER: tuple[str, Mapping[str, Any]] = ("get_weather", {"text": "a b", "count": 5})
MAIL: tuple[str, Mapping[str, Any]] = ("send_mail", {"metric": True, "zone": "<b>x</b>"})
_OWN_CALL = re.compile(
    r"<[\w:]*tool_calls?\b.*</[\w:]*tool_calls?[\w:]*>|<TOOLCALL>.*</TOOLCALL>|<function.*</function>"
    r'|\{"name".*\}\}',
    re.DOTALL,
)


_TAG = re.compile(r"<[^<>]*>|\[/?[A-Z_]+\]")


@dataclass
class Segment:
    """A segment, from its events."""

    kind: SegmentKind
    name: str | None
    text: str = ""
    complete: bool = False


@dataclass
class Reading:
    """Everything that a parser made of a text."""

    segments: list[Segment]
    repairs: list[Repair]
    stopped_at: int | None
    """The position in the ids behind which everything is ignored."""

    @property
    def calls(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.kind in TOOL_KINDS]

    @property
    def texts(self) -> list[str]:
        """The texts of all segments and repairs."""
        return [item.text for item in (*self.segments, *self.repairs)]


def read_events(events: Iterable[ParseEvent]) -> Reading:
    """Collect the events of a parser."""
    reading = Reading([], [], None)
    for event in events:
        match event:
            case Opened(kind, recipient, raw):
                reading.segments.append(Segment(kind, recipient or raw))
            case Delta(text):
                reading.segments[-1].text += text
            case Closed(complete):
                reading.segments[-1].complete = complete
            case Repair():
                reading.repairs.append(event)
            case Stop(_, at):
                reading.stopped_at = at
    return reading


class FamilyHarness:
    """The format that is derived from a template, and its parser."""

    def __init__(self, name: str) -> None:
        self.name, self.family = name, FAMILIES[name]
        self.format = template_format(source(name))
        self.untyped = Recipients(TOOL_NAMES)
        self.declared = Recipients(TOOL_NAMES, schemas=dict.fromkeys(TOOL_NAMES, SCHEMA))

    def events(
        self, ids: Sequence[int], cuts: Iterable[int] = (), *, schemas: bool = False
    ) -> list[ParseEvent]:
        """Parse ids cut at these positions; adjacent deltas are merged."""
        parser = self.format.parser(self.declared if schemas else self.untyped)
        events: list[ParseEvent] = []
        start = 0
        for cut in (*sorted(cuts), len(ids)):
            events += parser.feed(ids[start:cut])
            start = cut
        events += parser.finish()
        merged: list[ParseEvent] = []
        for event in events:
            if isinstance(event, Delta) and merged and isinstance(merged[-1], Delta):
                merged[-1] = Delta(merged[-1].text + event.text)
            else:
                merged.append(event)
        return merged

    def read(self, text: str, *, schemas: bool = False) -> Reading:
        return read_events(self.events(self.format.encode_markup(text), schemas=schemas))

    def check_splits(self, text: str, rng: random.Random, *, short: int = 150) -> None:
        """Check that events are those of the entire text, for all ways to feed it in two pieces (if
        it is short), one id at a time, and in random pieces."""
        ids = self.format.encode_markup(text)
        entire, inner = self.events(ids), range(1, len(ids))
        splits: list[Iterable[int]] = [inner]
        splits += [[cut] for cut in (inner if len(ids) <= short else rng.sample(inner, 12))]
        splits += [rng.sample(inner, rng.randint(1, len(inner) // 2)) for _ in range(4)]
        for cuts in splits:
            assert self.events(ids, cuts) == entire, f"{self.name}, {text!r}: other at {cuts}"

    def quoted_call(self) -> str:
        """A call in the family's own syntax, if that is text; otherwise in that of others."""
        if not self.family.calls or not self.family.plain:
            return QUOTED
        own = _OWN_CALL.search(written_text(self.name, AssistantMessage(calls=(WEATHER,))))
        assert own
        return own[0]

    def messages(self) -> dict[str, AssistantMessage]:
        """The messages of all shapes that the family has."""
        family, block = self.family, f"Like this:\n\n```\n{self.quoted_call()}\n```\n\nThat is all."
        shapes = {"answer": AssistantMessage(None, ANSWER), "quoted": AssistantMessage(None, block)}
        if family.thought:
            shapes["thought"] = AssistantMessage(THOUGHT, ANSWER)
            shapes["quoting thought"] = AssistantMessage(block, ANSWER)
        if family.calls:
            shapes["call"] = AssistantMessage(calls=(WEATHER,))
        if family.calls > 1:
            shapes["two calls"] = AssistantMessage(calls=(WEATHER, MAIL))
        if family.words:
            shapes["words and call"] = AssistantMessage(None, WORDS, (WEATHER,))
        if family.calls and family.thought:
            words = WORDS if family.words else ""
            calls = (WEATHER, MAIL)[: family.calls]
            shapes["thought and calls"] = AssistantMessage(THOUGHT, words, calls)
        return shapes


@functools.cache
def harness(name: str) -> FamilyHarness:
    """The harness of a template, made once."""
    return FamilyHarness(name)


def difference(
    name: str, message: AssistantMessage, reading: Reading, *, schemas: bool
) -> str | None:
    """What is wrong with the segments of this message; None: nothing."""
    family = FAMILIES[name]
    words = [("text", message.content)] if message.content else []
    expected: list[tuple[Any, ...]] = []
    if message.reasoning:
        expected.append(("reasoning", message.reasoning))
    expected += words if not message.calls or family.words == "before" else []
    expected += [("tool", *call) for call in message.calls]
    expected += words if message.calls and family.words == "after" else []
    typed = schemas or family.typed
    return mismatch(expected, reading, typed=typed, ends=family.ends)


def mismatch(
    expected: Sequence[Sequence[Any]], reading: Reading, *, typed: bool, ends: bool = True
) -> str | None:
    """What is wrong with segments of which these (kind, text) and (tool, name, arguments) are meant.

    The kind ``text`` is that of words to the user, before a call or as the answer; ``any``: these or
    reasoning. A last item says whether the segment is complete (None: either). Space around a text
    does not count, nor do segments of nothing else and repairs of tags. ``typed``: values have the
    right types. ``ends``: the last segment has an end in the text.
    """
    actual = [s for s in reading.segments if s.kind in TOOL_KINDS or s.text.strip()]
    if len(actual) != len(expected):
        return f"{len(expected)} segments meant, {len(actual)} read"
    for i, (segment, (kind, *rest)) in enumerate(zip(actual, expected, strict=True)):
        if kind in ("tool", "tool_unknown"):
            problem = _wrong_call(segment, kind, *rest, typed=typed)
        else:
            is_last = i == len(actual) - 1
            problem = _wrong_text(segment, kind, *rest, ends=ends or not is_last)
        if problem:
            return f"segment {i}: {problem}"
    if lost := [repair for repair in reading.repairs if _TAG.sub("", repair.text).strip()]:
        return f"repaired: {lost}"
    return None


def _wrong_text(segment: Segment, kind: str, text: str, complete: bool | None = True, *,
                ends: bool) -> str | None:  # fmt: skip
    kinds = {"text": ("preamble", "final"), "any": ("reasoning", "preamble", "final")}
    if segment.kind not in kinds.get(kind, (kind,)):
        return f"{segment.kind} instead of {kind}"
    if segment.text.strip() != text.strip():
        return "other text"
    if complete is not None and segment.complete != complete and (ends or not complete):
        return "complete" if segment.complete else "not complete"
    return None


def _wrong_call(segment: Segment, kind: str, name: str, arguments: Any, complete: bool = True, *,
                typed: bool) -> str | None:  # fmt: skip
    if segment.kind != kind or segment.name != name:
        return f"{segment.kind} {segment.name} instead of {kind} {name}"
    if segment.complete != complete:
        return "complete" if segment.complete else "not complete"
    if not complete:
        return None
    try:
        value = json.loads(segment.text)
    except ValueError:
        return "no JSON"
    if not (same_json if typed else similar_json)(value, arguments):
        return f"other arguments: {segment.text}"
    return None


def same_json(value: Any, meant: Any) -> bool:
    """Whether two values are equal and of the same types."""
    if type(value) is not type(meant):
        return False
    if isinstance(meant, dict):
        return value.keys() == meant.keys() and all(same_json(value[k], meant[k]) for k in meant)
    if isinstance(meant, list):
        return len(value) == len(meant) and all(map(same_json, value, meant))
    return bool(value == meant)


def similar_json(value: Any, meant: Any) -> bool:
    """Whether a value is another, or the word for it in a syntax that has only words."""
    if isinstance(meant, dict) and isinstance(value, dict):
        return value.keys() == meant.keys() and all(similar_json(value[k], meant[k]) for k in meant)
    if isinstance(meant, list) and isinstance(value, list):
        return len(value) == len(meant) and all(map(similar_json, value, meant))
    if same_json(value, meant):
        return True
    if isinstance(meant, str):
        return not isinstance(value, str) and same_json(_word(meant), value)
    return isinstance(value, str) and (
        same_json(_word(value), meant) or (value == "" and meant in ([], {}))
    )


def _word(text: str) -> Any:
    """The value that a word means, in JSON or Python; itself if none."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text.strip())
        except (ValueError, SyntaxError):
            pass
    return text
