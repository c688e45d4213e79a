"""Deletes a conversation together with the files that tools keep for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.store.conversations import Store


def delete_conversation(store: Store, conversation_id: str) -> None:
    """Delete a conversation from the store, and its tools' working folders from the cache."""
    from agent.config.paths import user_paths
    from tools.builtin import conversation_folders

    # The record goes last: if this is interrupted, it can be deleted again.
    conversation_folders.delete_conversation(user_paths().cache, conversation_id)
    store.delete(conversation_id)
