"""What the tools take of every prompt."""

from __future__ import annotations

from collections.abc import Sequence

from agent.formats.protocol import Format
from agent.turn.options import Options
from tools.types import Tool

_NONE = Tool("", "", "", {"type": "object", "properties": {}}, "nothing")


def tool_tokens(form: Format, options: Options, tools: Sequence[Tool]) -> list[int]:
    """Of each tool's declaration: the tokens that it adds where other tools are declared already,
    in the model's own vocabulary and form."""
    alone = len(form.head(options.head([_NONE])))
    return [len(form.head(options.head([_NONE, tool]))) - alone for tool in tools]


def all_tokens(form: Format, options: Options, tools: Sequence[Tool]) -> int:
    """Of all declarations together, with what frames them."""
    return len(form.head(options.head(tools))) - len(form.head(options.head([])))
