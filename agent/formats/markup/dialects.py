"""The dialects of markup in text, with the tags and special tokens of each. A tag counts as one special
id and spelled in ordinary tokens, as finetunes do both; in Markdown's code it is text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agent.formats.markup.vocabulary import MarkupEncoder

THINK, THINK_END = "<think>", "</think>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION = "<function="
PYTHON_TAG = "<|python_tag|>"


@dataclass(frozen=True)
class Dialect:
    """The markup of one family of models."""

    name: str
    tags: tuple[str, ...]
    """Tags that begin or end reasoning and calls."""
    end_markers: tuple[str, ...]
    """Special tokens that end a generation."""
    turn_markers: tuple[str, ...]
    """Special tokens that begin another role's message."""
    bare_json_calls: bool = False
    """A JSON object with name and parameters at the beginning of a line is a call."""
    xml_calls: bool = False
    """Calls are written as tags instead of JSON."""
    other_markers: tuple[str, ...] = field(default=())
    """Further special tokens that the dialect's templates use."""

    @cached_property
    def tag_pattern(self) -> re.Pattern[str]:
        """A pattern of what may end prose: any tag, or ``{`` where that may begin a call."""
        patterns = [re.escape(tag) for tag in self.tags] + ([r"\{"] if self.bare_json_calls else [])
        return re.compile("|".join(patterns) or r"(?!)")

    @property
    def specials(self) -> tuple[str, ...]:
        """The special tokens that a vocabulary for this dialect needs."""
        names = (*self.tags, *self.end_markers, *self.turn_markers, *self.other_markers)
        return tuple(name for name in dict.fromkeys(names) if name.endswith(">"))


_ENDS, _TURNS = ("<|im_end|>", "<|endoftext|>"), ("<|im_start|>",)

DIALECTS = {
    family.name: family
    for family in (
        Dialect("qwen3", (THINK, THINK_END, CALL, CALL_END), _ENDS, _TURNS),
        Dialect(
            "qwen3-coder",
            (THINK, THINK_END, CALL, CALL_END, FUNCTION),
            _ENDS,
            _TURNS,
            xml_calls=True,
        ),
        Dialect(
            "llama3",
            (THINK, THINK_END, PYTHON_TAG),
            end_markers=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
            turn_markers=("<|start_header_id|>",),
            bare_json_calls=True,
            other_markers=("<|begin_of_text|>", "<|end_header_id|>"),
        ),
        Dialect(
            "plain",
            (THINK, THINK_END),
            (*_ENDS, "<end_of_turn>", "<|eot_id|>", "</s>"),
            (*_TURNS, "<start_of_turn>", "<|start_header_id|>", "[INST]"),
        ),
    )
}


def encode_call(
    dialect: Dialect, encoder: MarkupEncoder, recipient: str, arguments: str | None
) -> list[int]:
    """Encode a call; with ``arguments`` None only the part before them."""
    markup, text = encoder.encode_markup, encoder.encode_text
    name = json.dumps(recipient, ensure_ascii=False)
    if dialect.xml_calls:
        ids = markup(f"{CALL}\n<function=") + text(recipient) + markup(">\n")
        if arguments is None:
            return ids
        for key, value in _argument_values(arguments).items():
            value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            ids += text(f"<parameter={key}>\n{value}\n</parameter>\n")
        return ids + markup(f"</function>\n{CALL_END}")
    if dialect.bare_json_calls:
        ids = text(f'{{"name": {name}, "parameters": ')
        return ids + text(f"{arguments}}}") if arguments is not None else ids
    ids = markup(f"{CALL}\n") + text(f'{{"name": {name}, "arguments": ')
    return ids if arguments is None else ids + text(f"{arguments}}}\n") + markup(CALL_END)


def code_arguments(code: str) -> str:
    return json.dumps({"code": code}, ensure_ascii=False)


def _argument_values(arguments: str) -> Mapping[str, Any]:
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = None
    return values if isinstance(values, dict) else {"arguments": arguments}
