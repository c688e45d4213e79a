"""Converts a conversation for a model with another vocabulary."""

import json
from collections.abc import Iterable, Mapping

from agent.conversation.conversation import Conversation
from agent.conversation.messages import Assistant, ToolCallMessage, ToolResultMessage, User
from agent.events import McpCallItem, MessageItem, Response
from agent.formats.protocol import Format
from agent.formats.recipients import PYTHON_TOOL
from agent.util.ids import new_id


def convert_vocabulary(
    form: Format,
    turns: Iterable[tuple[str, Response]],
    vocabulary: str,
    tool_names: Mapping[tuple[str, str], str],
) -> Conversation:
    """A new conversation of ``turns``, without reasoning. ``vocabulary``: of the ids that ``form``
    writes. ``tool_names``: the models' names for tools, by server and tool."""
    conversation = Conversation(new_id("conv"), vocabulary=vocabulary)
    for prompt, response in turns:
        conversation.add(form, User(prompt))
        for item in response.output:
            match item:
                case MessageItem(content=parts, phase=phase):
                    if text := "".join(part.text for part in parts):
                        conversation.add(form, Assistant(text, phase))
                case McpCallItem():
                    label = (item.server_label, item.name)
                    name = tool_names.get(label) or "__".join(label)
                    conversation.add(form, _call(name, item.arguments))
                    text = item.output or "" if item.error is None else item.error.text
                    failed = item.error is not None
                    conversation.add(form, ToolResultMessage(name, text, failed=failed))
    return conversation


def _call(name: str, arguments: str) -> ToolCallMessage:
    """A call as models write it: for Python, bare code."""
    match json.loads(arguments or "{}") if name == PYTHON_TOOL else None:
        case {"code": str(code)}:
            return ToolCallMessage(name, code, json=False)
        case _:
            return ToolCallMessage(name, arguments)
