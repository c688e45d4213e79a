"""The families that write markup over text, and the tags of each.

A tag counts whether the model wrote it as its own id or spelled it in ordinary ones: finetunes do
both, and their tokenizers make the one id of the spelling in any text that they were trained on. In
code, which Markdown's fences and backticks mark, a tag is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

THINK, THINK_END = "<think>", "</think>"
CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION = "<function="
PYTHON_TAG = "<|python_tag|>"


@dataclass(frozen=True)
class Family:
    """How one family writes."""

    name: str
    tags: tuple[str, ...]
    ends: tuple[str, ...]
    """Specials that end what the model says."""
    turns: tuple[str, ...]
    """Specials that begin somebody's turn."""
    bare_json: bool = False
    """An object with name and parameters that begins a line is a call."""
    xml: bool = False
    """Calls are told to be written as tags, not as JSON."""
    other: tuple[str, ...] = field(default=())
    """Further specials that its own markup needs."""

    @cached_property
    def seek(self) -> re.Pattern[str]:
        """Where prose may end."""
        found = [re.escape(tag) for tag in self.tags] + ([r"\{"] if self.bare_json else [])
        return re.compile("|".join(found) or r"(?!)")

    @property
    def specials(self) -> tuple[str, ...]:
        """All that a vocabulary of this family needs, besides text."""
        names = (*self.tags, *self.ends, *self.turns, *self.other)
        return tuple(name for name in dict.fromkeys(names) if name.endswith(">"))


_ENDS, _TURNS = ("<|im_end|>", "<|endoftext|>"), ("<|im_start|>",)

FAMILIES = {
    family.name: family
    for family in (
        Family("qwen3", (THINK, THINK_END, CALL, CALL_END), _ENDS, _TURNS),
        Family(
            "qwen3-coder", (THINK, THINK_END, CALL, CALL_END, FUNCTION), _ENDS, _TURNS, xml=True
        ),
        Family(
            "llama3",
            (THINK, THINK_END, PYTHON_TAG),
            ends=("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
            turns=("<|start_header_id|>",),
            bare_json=True,
            other=("<|begin_of_text|>", "<|end_header_id|>"),
        ),
        Family(
            "plain",
            (THINK, THINK_END),
            (*_ENDS, "<end_of_turn>", "<|eot_id|>", "</s>"),
            (*_TURNS, "<start_of_turn>", "<|start_header_id|>", "[INST]"),
        ),
    )
}
