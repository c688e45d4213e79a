"""What a conversation has read, told from its own messages: so it outlives the process, and a branch
has its part of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from agent.conversation.conversation import Conversation, Entry
from agent.formats.protocol import Format
from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.policy.taint import Exposure
from tools.types import Tool

UNKNOWN_TOOL_ERROR = "Error: there is no tool named"
"""How the result of a call begins whose tool does not exist."""
_ATTACHED = re.compile(r"\n<(file_*) path=\"[^\"\n]*\" lines=\"\d+\">\n.*?\n</\1>", re.DOTALL)
"""A file that the app appended to a prompt (`tui.util.attachments`): not the person's own words."""


def conversation_exposure(
    conversation: Conversation,
    form: Format,
    host: Host,
    *,
    instructions: str = "",
    client_functions: Collection[str] = (),
) -> Exposure:
    """Return what the conversation has read until now.

    ``instructions``: the operator's, whose addresses are trusted like the person's.
    ``client_functions``: recipients whose results are the client's affair.
    """
    tools = {form.canonical_name(tool.model_name): tool for tool in host.all_tools()}

    def results() -> Iterator[tuple[Tool, bool]]:
        for entry in conversation.entries:
            for recipient in (entry.recipient or "").split():
                tool = tools.get(recipient)
                if tool is not None:
                    yield tool, _is_public(host.server_config(tool.server))
                elif recipient not in client_functions and not _never_ran(entry):
                    server, _, name = recipient.removeprefix("functions.").rpartition("__")
                    yield Tool(server or "an earlier tool", name, "", {}), False

    def _never_ran(entry: Entry) -> bool:
        return UNKNOWN_TOOL_ERROR in _text(form, entry)

    person = [
        _ATTACHED.sub("", _text(form, entry))
        for entry in conversation.entries
        if entry.role in ("user", "steering")
    ]
    return Exposure.of(results(), [*person, instructions])


def _is_public(config: ServerConfig | None) -> bool:
    """Whether a server's results are nothing private: the operator says so, or an API client brought
    the server, whose results are the client's own."""
    if config is None or config.from_project:
        return False
    return config.public or config.client_network != ""


def _text(form: Format, entry: Entry) -> str:
    """Return a message with its markup."""
    return b"".join(map(form.token_bytes, entry.ids)).decode("utf-8", "replace")
