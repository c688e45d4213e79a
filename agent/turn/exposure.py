"""What a conversation has read, told from its own messages: so it outlives the process, and a branch
has its part of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from agent.conversation.attachments import ATTACHMENT
from agent.conversation.conversation import Conversation, Entry
from agent.formats.protocol import Format
from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.policy.taint import Exposure
from tools.types import Tool

UNKNOWN_TOOL_ERROR = "Error: there is no tool named"
"""How the result of a call begins whose tool does not exist."""
ATTACHED = Tool("files", "attached", "", {})
"""Stands for the texts that prompts bring along (`agent.conversation.attachments`), which may be
private and of strangers as any tool's results."""


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

    prompts = [
        _text(form, [token for token in entry.ids if not form.is_markup(token)])
        for entry in conversation.entries
        if entry.role in ("user", "steering")
    ]

    def results() -> Iterator[tuple[Tool, bool]]:
        if any(ATTACHMENT.search(text) for text in prompts):
            yield ATTACHED, False
        for entry in conversation.entries:
            for recipient in (entry.recipient or "").split():
                tool = tools.get(recipient)
                if tool is not None:
                    yield tool, _is_public(host.server_config(tool.server))
                elif recipient not in client_functions and not _never_ran(entry):
                    server, _, name = recipient.removeprefix("functions.").rpartition("__")
                    yield Tool(server or "an earlier tool", name, "", {}), False

    def _never_ran(entry: Entry) -> bool:
        return UNKNOWN_TOOL_ERROR in _text(form, entry.ids)

    return Exposure.of(results(), [*(ATTACHMENT.sub("", text) for text in prompts), instructions])


def _is_public(config: ServerConfig | None) -> bool:
    """Whether a server's results are nothing private: the operator says so, or an API client brought
    the server, whose results are the client's own."""
    if config is None or config.from_project:
        return False
    return config.public or config.client_network != ""


def _text(form: Format, ids: Iterable[int]) -> str:
    return b"".join(map(form.token_bytes, ids)).decode("utf-8", "replace")
