"""Converts a conversation for a model with another vocabulary: its texts alone are carried over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from agent.conversation.conversation import Conversation
from agent.conversation.messages import Assistant, User
from agent.events import MessageItem, Response
from agent.formats.protocol import Format
from agent.util.ids import new_id


class PastTurn(Protocol):
    """A turn of a stored conversation."""

    @property
    def prompt(self) -> str:
        """What the user wrote."""
        ...

    @property
    def response(self) -> Response:
        """What came of it."""
        ...


def convert_vocabulary(form: Format, turns: Iterable[PastTurn], vocabulary: str) -> Conversation:
    """A new conversation with the prompts and messages of ``turns``, in the ids of ``vocabulary``.

    ``form`` writes ids of that vocabulary. Reasoning, calls and their results are left out.
    """
    conversation = Conversation(new_id("conv"), vocabulary=vocabulary)
    for turn in turns:
        conversation.add(form, User(turn.prompt))
        for item in turn.response.output:
            match item:
                case MessageItem(content=parts, phase=phase) if text := "".join(
                    part.text for part in parts
                ):
                    conversation.add(form, Assistant(text, phase))
                case _:
                    pass
    return conversation
