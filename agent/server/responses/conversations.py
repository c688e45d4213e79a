"""Conversations of ``/v1/conversations``, which are the store's: the app and the command line continue
them too. While a turn extends one, or its items change, other changes are refused."""

import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from agent.conversation.conversation import Conversation
from agent.runtime.runtime import LoadedModel
from agent.server.http.clients import current_client
from agent.server.http.errors import ApiError, invalid
from agent.server.input.conversation_items import (
    add_items,
    new_messages,
    read_turns,
    turn_items,
    with_output_of,
    without_item,
)
from agent.server.input.files import DocumentReader
from agent.server.input.items import abandoned_calls, read_item
from agent.server.input.listed_items import ID_PREFIXES, list_input
from agent.server.input.schemas import InputItem, ItemReference
from agent.server.input.stored_responses import Continued, ResponseCache
from agent.server.input.token_memo import TokenMemo, pretokenise
from agent.server.responses.models import ServedModels
from agent.store.api_conversations import ApiConversation, ApiConversationStore, ItemTurn
from agent.store.conversations import Store, delete_conversation
from agent.store.records import title_from
from agent.store.schema import give_back_pages
from agent.store.tree import ConversationChangedError
from agent.util.ids import new_id

T = TypeVar("T")
_ID = re.compile(r"[A-Za-z0-9_.:-]*[A-Za-z0-9_:-]")
"""Ids of items that need no escaping in a path; "." and ".." do."""


class Conversations:
    """The conversations of a server; methods raise ApiError."""

    def __init__(
        self,
        models: ServedModels,
        store: Store,
        cache: ResponseCache,
        memo: TokenMemo,
        document_reader: DocumentReader,
        *,
        lenient: bool = False,
    ) -> None:
        """``lenient``: replace unreadable content by a sentence, instead of refusing it."""
        self.store = ApiConversationStore(store)
        self._models, self._runtime = models, models.first.runtime
        self._cache, self._memo = cache, memo
        self._document_reader, self._lenient = document_reader, lenient
        self._locked: set[str] = set()

    # --- whole conversations ---

    async def find(self, conversation_id: str) -> ApiConversation:
        """A conversation of the current client by its full id. Raises ApiError, 404."""
        return await self._of_client(conversation_id, lambda conversation: conversation)

    async def _of_client(self, name: str, work: Callable[[ApiConversation], T]) -> T:
        """Apply ``work`` to a conversation in the store's thread. Raises ApiError, 404."""
        client = current_client()

        def find() -> T:
            conversation = self.store.find(name)
            if conversation is None or not client.owns(conversation.owner):
                raise _missing(f"Conversation with id '{name[:80]}' not found.", "conversation")
            return work(conversation)

        return await self.store.store.run(find)

    async def _write(self, work: Callable[[], T]) -> T:
        with storing():
            return await self.store.store.run(work)

    async def create(
        self, metadata: dict[str, str], items: Sequence[InputItem], sent: Sequence[dict[str, Any]]
    ) -> ApiConversation:
        """Create a conversation with items; ``sent``: these as they were sent."""
        conversation = Conversation(new_id("conv"))
        added = await self._render(conversation, [], items, sent)
        model, owner = self._runtime.model.name, current_client().name

        def write() -> None:
            self.store.create(conversation, metadata, model, owner)
            if added:
                self.store.write(conversation, added)

        await self._write(write)
        return await self.find(conversation.id)

    async def update(self, conversation_id: str, metadata: dict[str, str]) -> ApiConversation:
        await self.find(conversation_id)
        await self._write(lambda: self.store.set_metadata(conversation_id, metadata))
        return await self.find(conversation_id)

    async def keep(self, conversation_id: str) -> None:
        """Keep a conversation until it is deleted. Raises sqlite3.Error."""
        await self.store.store.run(lambda: self.store.keep(conversation_id))

    async def delete(self, conversation_id: str) -> None:
        async with self.locked(conversation_id):
            await self._write(lambda: delete_conversation(self.store.store, conversation_id))
            self._cache.evict_conversation(conversation_id)
        self._runtime.host.builtins.end_conversation(conversation_id)

    # --- locks ---

    async def lock(self, conversation_id: str) -> None:
        """Lock a conversation against other changes until `unlock`. Raises ApiError."""
        running = await self._of_client(
            conversation_id, lambda _: self.store.is_running(conversation_id)
        )
        if running or conversation_id in self._locked:
            message = (
                "Another process is currently operating on this conversation."
                " Please retry in a few seconds."
            )
            raise invalid("conversation", message, "conversation_locked")
        self._locked.add(conversation_id)

    def unlock(self, conversation_id: str) -> None:
        self._locked.discard(conversation_id)

    @asynccontextmanager
    async def locked(self, conversation_id: str) -> AsyncIterator[None]:
        await self.lock(conversation_id)
        try:
            yield
        finally:
            self.unlock(conversation_id)

    # --- turns ---

    async def continued(self, conversation_id: str, vocabulary: str) -> Continued:
        """Return the state that a turn of a conversation continues; ``vocabulary``: the model's."""
        store, tools = self.store.store, self._runtime.host.tools()

        def read(_: ApiConversation) -> Continued:
            conversation = store.read(conversation_id)
            check_vocabulary(conversation, vocabulary)
            history = read_turns(self.store.turns(conversation_id), tools)[0]
            last = self.store.last_response(conversation) if history.pending_calls else None
            # Not from memory: another process may have written the conversation since.
            if last is not None and (turn := store.served_turn(last, is_latest=True)):
                conversation = turn.conversation  # with the reasoning before the client's calls
            return Continued(conversation, history)

        return await self._of_client(conversation_id, read)

    # --- items ---

    async def items(self, conversation_id: str) -> list[dict[str, Any]]:
        """All items of a conversation, the oldest first."""
        turns = await self._of_client(conversation_id, lambda _: self.store.turns(conversation_id))
        return [item for turn in turns for item in turn_items(turn)]

    async def item(self, conversation_id: str, item_id: str) -> dict[str, Any]:
        for item in await self.items(conversation_id):
            if item["id"] == item_id:
                return item
        message = f"Item with id '{item_id[:80]}' not found in conversation '{conversation_id}'."
        raise _missing(message, "item")

    async def add(
        self, conversation_id: str, items: Sequence[InputItem], sent: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Add items behind the others; returns them as they are listed."""
        async with self.locked(conversation_id):
            conversation, turns = await self._read(conversation_id)
            added = await self._render(conversation, turns, items, sent)
            await self._write(lambda: self._keep_and_write(conversation, added))
        return [item for turn in added for item in turn_items(turn)]

    async def delete_item(self, conversation_id: str, item_id: str) -> None:
        """Delete an item; turns before its own keep their token ids, the others are rendered again."""
        async with self.locked(conversation_id):
            await self.item(conversation_id, item_id)
            before, turns = await self._read(conversation_id)
            items = (item for turn in turns for item in turn_items(turn))
            deleted_ids = with_output_of(list(items), item_id)
            before.end_turn()  # the turns' indexes count no reasoning, which an open call still has
            ids = [[item["id"] for item in turn_items(turn)] for turn in turns]
            at = next(at for at, own in enumerate(ids) if item_id in own)
            first, start = _first_entry(turns, at)
            deleted, title = [], title_from(turns[at].prompt)
            for turn in turns[at:]:
                own = {item["id"] for item in turn_items(turn)}.intersection(deleted_ids)
                if (left := [without_item(turn, each) for each in own]) and not left[-1]:
                    turns.remove(turn)
                    deleted.append(turn.id)
            # Those from the first one on are rendered again.
            conversation = before.branch(before.id, start)
            left_items = (read_item(item) for turn in turns[first:] for item in turn_items(turn))
            documents = await self._document_reader.read(filter(None, left_items), most=None)
            async with self._model(conversation) as (_, loaded):
                memo = self._memo.of(loaded.vocabulary)
                groups = read_turns(turns, self._runtime.host.tools(), documents)[1][first:]
                for turn, messages in zip(turns[first:], groups, strict=True):
                    turn.start = len(conversation.entries)
                    for message in await pretokenise(loaded.format, messages, None, memo):
                        conversation.add(loaded.format, message)
                    turn.upto = len(conversation.entries)
            await self._write(lambda: self._keep_and_write(conversation, turns[first:], deleted))
            self._cache.evict_conversation(conversation_id)
            prompt = next((turn.prompt for turn in turns if turn.prompt), "")

            def end() -> None:
                self.store.store.replace_title(conversation_id, title, prompt)
                give_back_pages(self.store.store.db)  # of what was deleted

            await self._write(end)

    async def _read(self, conversation_id: str) -> tuple[Conversation, list[ItemTurn]]:
        """A conversation, first, so that a later change is noticed, and its turns."""
        store = self.store
        return await store.store.run(
            lambda: (store.store.read(conversation_id), store.turns(conversation_id))
        )

    def _keep_and_write(
        self, conversation: Conversation, turns: Sequence[ItemTurn], deleted: Sequence[str] = ()
    ) -> None:
        self.store.keep(conversation.id)
        self.store.write(conversation, turns, deleted)

    async def _render(
        self,
        conversation: Conversation,
        turns: Sequence[ItemTurn],
        items: Sequence[InputItem],
        sent: Sequence[dict[str, Any]],
    ) -> list[ItemTurn]:
        """Add items to a conversation that has these turns; returns the turns that hold them."""
        if not items:
            return []
        known = {item["id"]: item for turn in turns for item in turn_items(turn)}
        listed = await list_new_inputs(sent, known, self._cache)
        find = (await referenced_items(items, known, self._cache)).get
        meant = (find(item.id) if isinstance(item, ItemReference) else item for item in items)
        documents = await self._document_reader.read(filter(None, meant))
        async with self._model(conversation) as (model, loaded):
            memo, tools = self._memo.of(loaded.vocabulary), self._runtime.host.tools()
            history = read_turns(turns, tools)[0]
            ended = abandoned_calls(listed, history.pending_calls)
            groups = new_messages(
                items,
                history,
                tools,
                find,
                documents,
                refuse_unseen=not self._lenient,
                abandoned=ended,
            )
            groups = [list(await pretokenise(loaded.format, group, None, memo)) for group in groups]
            return add_items(conversation, loaded.format, listed, groups, model)

    @asynccontextmanager
    async def _model(self, conversation: Conversation) -> AsyncIterator[tuple[str, LoadedModel]]:
        """Keep the model of a conversation loaded for a block; yields its name too."""
        names = (served.name for served in self._models.known)
        name = next((name for name in names if name == conversation.vocabulary), None)
        async with self._models.in_use(name) as (served, loaded):
            check_vocabulary(conversation, loaded.vocabulary)
            conversation.vocabulary = loaded.vocabulary
            yield served.name, loaded


def check_vocabulary(conversation: Conversation, vocabulary: str) -> None:
    """Refuse a conversation in the tokens of another vocabulary than the model's. Raises ApiError."""
    if conversation.vocabulary not in (None, vocabulary):
        message = (
            f"The conversation '{conversation.id}' has tokens of another vocabulary"
            f" ({conversation.vocabulary}): continue with that model, or begin a new one."
        )
        raise invalid("conversation", message)


async def _find_item(
    name: str, known: Mapping[str, dict[str, Any]], cache: ResponseCache
) -> dict[str, Any] | None:
    """An item by its id: one that is ``known``, or else of a response."""
    if (item := known.get(name)) is not None:
        return dict(item)
    stored = await cache.response_with(name)
    output = stored.response.output if stored is not None else ()
    return next((item.model_dump(mode="json") for item in output if item.id == name), None)


async def referenced_items(
    items: Iterable[InputItem | str], known: Mapping[str, dict[str, Any]], cache: ResponseCache
) -> dict[str, InputItem]:
    names = {item.id for item in items if isinstance(item, ItemReference)}
    found = {name: read_item(await _find_item(name, known, cache)) for name in names}
    return {name: item for name, item in found.items() if item is not None}


async def list_new_inputs(
    sent: str | Sequence[dict[str, Any]], known: Mapping[str, dict[str, Any]], cache: ResponseCache
) -> tuple[dict[str, Any], ...]:
    """Items that a client sends, as their conversation, which has those in ``known``, will list them:
    references are replaced, and ids that are taken or cannot be part of a path."""
    items, taken = [], set(known)
    for item in list_input(sent) if sent else ():
        if item["type"] == "item_reference":
            item = await _find_item(item["id"], known, cache) or item
        if not (isinstance(item["id"], str) and _ID.fullmatch(item["id"])):
            item["id"] = new_id(ID_PREFIXES.get(item["type"], "item"))
        elif item["id"] in taken:
            item["id"] = new_id(item["id"].partition("_")[0])
        taken.add(item["id"])
        items.append(item)
    return tuple(items)


def _first_entry(turns: Sequence[ItemTurn], at: int) -> tuple[int, int]:
    """The last turn up to ``at`` whose beginning is known, and its first entry, from the end of the
    turn before it: ``start`` counts reasoning that was dropped later."""
    for index in range(at, 0, -1):
        start, before = turns[index].start, turns[index - 1].upto
        if start is not None:
            return index, start if before is None else min(start, before)
    return 0, 0


def _missing(message: str, kind: str) -> ApiError:
    return ApiError(404, message, code=f"{kind}_not_found")


@contextmanager
def storing() -> Iterator[None]:
    """Make errors of the store those of the API. Raises ApiError."""
    try:
        yield
    except ConversationChangedError as error:
        message = "The conversation was changed meanwhile; please retry."
        raise invalid("conversation", message, "conversation_locked") from error
    except sqlite3.Error as error:
        message = f"The conversation cannot be stored: {error}."
        raise ApiError(500, message, code="server_error") from error
