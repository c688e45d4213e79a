"""Parts of OpenAI's API that this server does not have, or only as text; errors name them."""

from __future__ import annotations

UNSUPPORTED_FIELDS = frozenset(
    {"access_programs", "context_management", "moderation", "prompt"}
    | {"background_options.continuation_id", "image", "prompt_cache_options.ttl"}
    | {"prompt_cache_options.comparison_response_id", "prompt_cache_options.prewarm"}
    | {"tools[].async", "tools[].output_schema", "tools[].tunnel_id"}
    | {"tools[].tools[].async", "tools[].tools[].output_schema"}
)
"""Fields of OpenAI's API that no model here has; an error distinguishes them from misspelled ones."""
FOREIGN_TAG = "foreign"
FOREIGN_ITEMS = (
    "apply_patch_call", "apply_patch_call_output", "computer_call", "computer_call_output",
    "file_search_call", "image_generation_call", "local_shell_call", "local_shell_call_output",
    "program", "program_output", "shell_call", "shell_call_output", "tool_search_call",
    "tool_search_output",
)  # fmt: skip
"""Types of items that are read as text."""
UNSUPPORTED_ITEMS = {"compaction_trigger": "call POST /v1/responses/compact"}
"""Types of items of OpenAI's API that are refused, and what to do instead."""
