"""Token ids of messages that clients may send back as input items. The model's output can be rendered
in more than one way: with other ids the engine's cached prompt would not match, and everything after
them would be processed again. Other messages are remembered to save time. Long texts are tokenised in
steps, so that streams are not blocked."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from agent.conversation.conversation import Entry
from agent.conversation.messages import Message, ToolCallMessage
from agent.formats.protocol import Format
from agent.formats.tokenizer_text import (
    CHUNK_CHARS,
    TokenisedText,
    replace_surrogates,
    tokenizer_chunks,
)
from agent.server.http.clients import current_client
from agent.server.http.errors import context_length_exceeded
from agent.store.schema import ids_from_blob, ids_to_blob

MAX_MEMO_TOKENS = 1_000_000
MAX_ARGUMENT_CHARACTERS = 4_000_000
MAX_UNSPLIT_CHARACTERS = 4 * CHUNK_CHARS
"""Characters of all messages together that are left to be tokenised at once, when rendered."""

_Key = tuple[str, Message, str | None]
"""A client's mark (how it wrote a text tells that it did), a message, and a call's id."""


class TokenMemo:
    """Entries (token ids) of messages, an LRU cache bounded by tokens; `of`: those of a vocabulary."""

    def __init__(self, max_tokens: int = MAX_MEMO_TOKENS) -> None:
        self._entries: OrderedDict[_Key, tuple[Entry, bytes]] = OrderedDict()
        """Each entry without its ids, and these as bytes, which take a ninth of a list's memory."""
        self._max_tokens, self._tokens = max_tokens, 0
        self._by_vocabulary: dict[str, TokenMemo] = {}
        self._arguments: OrderedDict[tuple[str, str], str] = OrderedDict()
        """Arguments of calls as the model wrote them, by client and call_id."""
        self._argument_characters = 0
        self.tokenising = asyncio.Lock()
        """Held while a part of a text is tokenised: one at a time, however many requests there are."""

    def of(self, vocabulary: str) -> TokenMemo:
        """The memo of the ids of a vocabulary; it tokenises in turn with the others."""
        if (memo := self._by_vocabulary.get(vocabulary)) is None:
            memo = self._by_vocabulary[vocabulary] = TokenMemo(self._max_tokens)
            memo.tokenising = self.tokenising
        return memo

    def remember(self, message: Message, entry: Entry, call_id: str | None = None) -> None:
        """Remember a message's entry, among the latest. ``call_id``: it is of this call only."""
        key = current_client().name, message, call_id
        if key in self._entries:
            self._evict(key)
        self._entries[key] = replace(entry, ids=[]), ids_to_blob(entry.ids)
        self._tokens += len(entry.ids)
        while self._tokens > self._max_tokens:
            self._evict(next(iter(self._entries)))

    def remember_arguments(self, call_id: str, text: str) -> None:
        """Remember the arguments of a call, for clients that send them back as a JSON value."""
        self._arguments[current_client().name, call_id] = text
        self._argument_characters += len(text)
        while self._argument_characters > MAX_ARGUMENT_CHARACTERS:
            self._argument_characters -= len(self._arguments.popitem(last=False)[1])

    def arguments_text(self, call_id: str, value: Any) -> str:
        """The text of a call's arguments: as the model wrote it, if it means the same."""
        text = self._arguments.get((current_client().name, call_id))
        with suppress(ValueError):
            if text is not None and from_json(text) == value:
                return text
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def _evict(self, key: _Key) -> None:
        self._tokens -= len(ids_from_blob(self._entries.pop(key)[1]))

    def recall(self, message: Message) -> Entry | None:
        call_id = message.call_id if isinstance(message, ToolCallMessage) else None
        name = current_client().name
        for key in ((name, message, call_id), (name, message, None)):
            if key in self._entries:
                self._entries.move_to_end(key)
                entry, ids = self._entries[key]
                return replace(entry, ids=ids_from_blob(ids))
        return None


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
