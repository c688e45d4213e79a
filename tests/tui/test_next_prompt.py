"""The format of the next prompt, and of turns with another effort."""

from types import SimpleNamespace
from typing import Any

import pytest

from agent.conversation.conversation import Conversation
from agent.events import Reasoning
from agent.formats.detect import template_format
from agent.turn.options import TurnOptions
from tui.next_prompt import NextPrompt, turn_effort

SWITCH = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{{ '<think>' if enable_thinking else '<think></think>' }}{% endif %}"
)


def test_generation_prompt_has_the_chosen_effort() -> None:
    runtime: Any = SimpleNamespace(format=template_format(SWITCH))
    storage: Any = None
    options = TurnOptions(effort="low")
    prompt = NextPrompt(runtime, options, Conversation("c"), storage)
    low = runtime.format.with_effort("low")
    assert prompt.require_format().open_assistant() == low.open_assistant()
    assert prompt.require_format().open_assistant() != runtime.format.open_assistant()
    prompt.options = TurnOptions()
    assert prompt.require_format().open_assistant() == runtime.format.open_assistant()


@pytest.mark.parametrize(("written", "effort"), [("high", "high"), (None, None), ("odd", None)])
def test_effort_of_a_turn_is_its_response_s(written: str | None, effort: str | None) -> None:
    response: Any = SimpleNamespace(reasoning=Reasoning(effort=written))
    assert turn_effort(response) == effort
