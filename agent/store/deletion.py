"""Deletes a conversation together with what tools and models keep of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.store.conversations import Store


def delete_conversation(store: Store, conversation_id: str) -> None:
    """Delete a conversation and its tools' folders; empty the prefix cache, which may have parts of
    it."""
    from agent.config.paths import user_paths
    from agent.engine.llama import disk_cache
    from tools.builtin import conversation_folders

    disk_cache.clear(user_paths().prefix_cache)
    # The record goes last: if this is interrupted, it can be deleted again.
    conversation_folders.delete_conversation(user_paths().cache, conversation_id)
    store.delete(conversation_id)
