"""Long texts of a request, tokenised bit by bit: others are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agent.conversation.conversation import Called, Message
from agent.formats.protocol import Format
from agent.formats.tokenizer_text import PART, Tokenised, parts, whole
from agent.server.errors import ApiError
from agent.server.response_cache import Memo

AT_ONCE = 4 * PART
"""Characters of all messages together, which nobody notices."""


async def tokenised(
    form: Format, messages: Sequence[Message], context: int | None, memo: Memo, times: int = 1
) -> Sequence[Message]:
    """The messages; where they are long together, their texts know their ids.

    ``context``: in tokens; what is so many ``times`` longer is refused as soon as that is known.
    ``memo``: what need not be tokenised. Raises ApiError.
    """
    if sum(len(_text(message)) for message in messages) <= AT_ONCE:
        return messages
    result, total = list[Message](), 0
    for message in messages:
        if (entry := memo.recall(message)) is not None:
            result.append(message)
            total += len(entry.ids)
            continue
        known = Tokenised(_text(message))
        known.ids = []
        for part in parts(whole(known)):
            known.ids += form.plain(part)
            if context is not None and total + len(known.ids) > times * context:
                raise too_many_tokens(context, f"more than {context}")
            await asyncio.sleep(0)
        total += len(known.ids)
        if isinstance(message, Called):
            result.append(replace(message, arguments=known))
        else:
            result.append(replace(message, text=known))
    return result


def _text(message: Message) -> str:
    return message.arguments if isinstance(message, Called) else message.text


def too_many_tokens(context: int, number: int | str) -> ApiError:
    message = (
        f"This model's maximum context length is {context} tokens. However, your messages"
        f" resulted in {number} tokens. Please reduce the length of the messages."
    )
    return ApiError(400, message, code="context_length_exceeded", param="input")
