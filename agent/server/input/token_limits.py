"""Tokenises the long texts of a request in steps, so that streams are not blocked. A text that does not
fit into the context is refused as soon as that is known."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agent.conversation.messages import Message, ToolCallMessage
from agent.formats.protocol import Format
from agent.formats.tokenizer_text import (
    CHUNK_CHARS,
    TokenisedText,
    replace_surrogates,
    tokenizer_chunks,
)
from agent.server.http.errors import ApiError
from agent.server.input.token_memo import TokenMemo

MAX_UNSPLIT_CHARACTERS = 4 * CHUNK_CHARS
"""Characters of all messages together that are left to be tokenised at once, when rendered."""


async def pretokenise(
    format: Format,
    messages: Sequence[Message],
    context_tokens: int | None,
    memo: TokenMemo,
    max_factor: int = 1,
) -> Sequence[Message]:
    """Return the messages; if they are long together, with the ids of texts that ``memo`` lacks. Raises
    ApiError for more than ``max_factor`` times ``context_tokens`` (None: no limit)."""
    if sum(len(_text(message)) for message in messages) <= MAX_UNSPLIT_CHARACTERS:
        return messages
    result, total = list[Message](), 0
    for message in messages:
        if (entry := memo.recall(message)) is not None:
            result.append(message)
            total += len(entry.ids)
            continue
        text = TokenisedText(_text(message))
        text.ids = []
        for part in tokenizer_chunks(replace_surrogates(text)):
            async with memo.tokenising:
                text.ids += format.encode_text(part)
            if context_tokens is not None and total + len(text.ids) > max_factor * context_tokens:
                raise context_length_exceeded(context_tokens, f"more than {context_tokens}")
            await asyncio.sleep(0)
        total += len(text.ids)
        if isinstance(message, ToolCallMessage):
            result.append(replace(message, arguments=text))
        else:
            result.append(replace(message, text=text))
    return result


def _text(message: Message) -> str:
    return message.arguments if isinstance(message, ToolCallMessage) else message.text


class PromptTooLongError(ApiError):
    """Refuses a prompt that does not fit into the context."""

    anthropic_message = ""
    """The same in Anthropic's words, by which Claude Code knows that it has to compact."""


def context_length_exceeded(context_tokens: int, tokens: int | str) -> PromptTooLongError:
    """Status 400, in OpenAI's words; ``tokens``: the prompt's, or ``more than N``."""
    message = (
        f"This model's maximum context length is {context_tokens} tokens. However, your messages"
        f" resulted in {tokens} tokens. Please reduce the length of the messages."
    )
    error = PromptTooLongError(400, message, code="context_length_exceeded", param="input")
    error.anthropic_message = f"prompt is too long: {tokens} tokens > {context_tokens} maximum"
    return error
