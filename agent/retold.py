"""A conversation told again, to a model of another vocabulary: its texts alone."""

from __future__ import annotations

from collections.abc import Iterable

from agent.conversation import Assistant, Conversation, User
from agent.events import MessageItem
from agent.formats.base import Format
from agent.items import new_id
from agent.kept import KeptTurn


def retold(form: Format, turns: Iterable[KeptTurn], vocabulary: str) -> Conversation:
    """``vocabulary``: whose ids ``form`` writes."""
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
