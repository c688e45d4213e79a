"""A conversation told again, to a model of another vocabulary: its texts alone."""

from __future__ import annotations

from collections.abc import Iterable

from agent.conversation.conversation import Assistant, Conversation, User
from agent.events import MessageItem
from agent.formats.protocol import Format
from agent.store.records import KeptTurn
from agent.turn.output import new_id


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
