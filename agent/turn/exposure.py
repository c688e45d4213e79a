"""Derives what a conversation has read from its messages, also after a restart or in a branch."""

from collections.abc import Collection, Iterable, Iterator

from agent.conversation.attachments import Attachment, split_attachments
from agent.conversation.compaction import SUMMARY
from agent.conversation.conversation import Conversation
from agent.conversation.project_instructions import InstructionFile
from agent.formats.protocol import Format, decode
from agent.turn.tool_search import SEARCH_NAME
from tools.config.servers import ServerConfig
from tools.mcp.host import Host
from tools.policy.taint import Exposure
from tools.types import Tool, error_text

UNKNOWN_TOOL_ERROR = error_text("there is no tool named")
"""Beginning of the result of a call whose tool does not exist."""


def conversation_exposure(
    conversation: Conversation,
    form: Format,
    host: Host,
    *,
    instructions: str = "",
    files: Collection[InstructionFile] = (),
    client_functions: Collection[str] = (),
) -> Exposure:
    """Return what the conversation has read until now. ``instructions``: the operator's, whose
    addresses are trusted. ``files``: AGENTS.md; a repository's is not trusted. ``client_functions``:
    recipients whose results are the client's affair."""
    tools = {form.canonical_name(tool.model_name): tool for tool in host.all_tools()}

    # Definitions count neither here nor where the prompt declares them.
    ignored = {*client_functions, form.canonical_name(SEARCH_NAME)}
    entries = conversation.entries
    written = (entry.ids for entry in entries if entry.role in ("user", "steering"))
    prompts = [split_attachments(_prompt_text(form, ids)) for ids in written]

    def results() -> Iterator[tuple[Tool, bool]]:
        yield from ((Tool("", file.name, "", {}), False) for file in files if not file.own)
        for _, attachments in prompts:
            yield from (_as_result(attachment, host) for attachment in attachments)
        if any(e.role == "developer" and SUMMARY in decode(form, e.ids) for e in entries):
            # A client's, of turns that are not here: they may have read anything.
            yield Tool("", "a summary of earlier messages", "", {}), False
        for entry in entries:
            for recipient in (entry.recipient or "").split():
                tool = tools.get(recipient)
                if tool is not None:
                    yield tool, _is_public(host.server_config(tool.server))
                elif recipient not in ignored and UNKNOWN_TOOL_ERROR not in decode(form, entry.ids):
                    server, _, name = recipient.removeprefix("functions.").rpartition("__")
                    yield Tool(server or "an earlier tool", name, "", {}), False

    own_files = (file.text for file in files if file.own)
    return Exposure.of(results(), [*(words for words, _ in prompts), instructions, *own_files])


def _as_result(attachment: Attachment, host: Host) -> tuple[Tool, bool]:
    """The tool that stands for what a prompt brings along, and whether all from there is public."""
    if attachment.kind != "prompt":
        name = "attached" if attachment.kind == "file" else "the output of"
        return Tool("", f"{name} {attachment.source}", "", {}), False
    server, colon, name = attachment.source.partition(":")
    if not colon:  # a project's command file has no server
        server, name = "", server
    return Tool(server, name, "", {}), _is_public(host.server_config(server))


def _is_public(config: ServerConfig | None) -> bool:
    """Whether a server's results are not private: as configured, or as an API client brought it."""
    if config is None or config.from_project:
        return False
    return config.public or config.client_network != ""


def _prompt_text(form: Format, ids: Iterable[int]) -> str:
    """Return a message with a line break for each special token: none of them is part of a word."""
    texts = (b"\n" if form.is_markup(token) else form.token_bytes(token) for token in ids)
    return b"".join(texts).decode("utf-8", "replace")
