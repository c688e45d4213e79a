"""Bodies of requests to ``/v1/responses``, right and wrong ones, and tools that they declare."""

from typing import Any

from agent.formats.harmony.token_ids import CALL_ID, END_ID, END_OF_TEXT_ID, RETURN_ID
from tests.support.hosts import server_option
from tests.support.scripts import WEATHER

CODE_INTERPRETER = {"type": "mcp", "server_label": "code_interpreter"}
"""Python, as an MCP server of the operator."""
CODE_CONTAINER = {"type": "code_interpreter", "container": {"type": "auto"}}
"""Python, as OpenAI's hosted tool."""
APPLY_PATCH = {"type": "custom", "name": "apply_patch", "description": "Edit files."}
"""A custom tool."""
SEED_REQUEST = {
    "model": "default",
    "input": "Multiply 123*456 using the mcp.code_interpreter tool.",
    "tools": [
        {
            "type": "mcp",
            "server_label": "code_interpreter",
            "headers": {"test": "test"},
            "server_url": "IGNORED",
        }
    ],
    "enable_response_messages": True,
}
ENDLESS = {
    "logit_bias": {str(token): -100 for token in (END_ID, RETURN_ID, CALL_ID, END_OF_TEXT_ID)}
}
"""Fields of a request whose answer, with no guard against loops, ends only when it is stopped."""
UNKNOWN_SERVER = {"type": "mcp", "server_label": "nobody"}
BAD_REQUESTS: list[tuple[dict[str, Any], str | None, str]] = [
    ({}, "input", "missing_required_parameter"),
    ({"input": []}, "input", "missing_required_parameter"),
    ({"input": 1}, "input", "invalid_type"),
    ({"input": [1]}, "input[0]", "invalid_type"),
    ({"input": [{"type": "telepathy"}]}, "input[0]", "invalid_value"),
    ({"input": [{"role": "king", "content": "x"}]}, "input[0].role", "invalid_value"),
    ({"input": [{"role": "user"}]}, "input[0].content", "missing_required_parameter"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        "input[0].content[0].text",
        "missing_required_parameter",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "smell", "text": "x"}]}]},
        "input[0].content[0].type",
        "invalid_value",
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "call_x", "output": "x"}]},
        "input[0].call_id",
        "invalid_value",
    ),
    ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input[0]", "item_not_found"),
    ({"input": "x", "temperature": "hot"}, "temperature", "invalid_type"),
    ({"input": "x", "temperature": 3.5}, "temperature", "decimal_above_max_value"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens", "integer_below_min_value"),
    ({"input": "x", "max_output_tokens": 15}, "max_output_tokens", "integer_below_min_value"),
    ({"input": "x", "max_tool_calls": 0}, "max_tool_calls", "integer_below_min_value"),
    (
        {"input": "x", "reasoning": {"max_tokens": -1}},
        "reasoning.max_tokens",
        "integer_below_min_value",
    ),
    ({"input": "x", "reasoning": {"max_tokens": "5"}}, "reasoning.max_tokens", "invalid_type"),
    ({"input": "x", "reasoning": {"max_tokens": 1.5}}, "reasoning.max_tokens", "invalid_type"),
    ({"input": "x", "foo": 1}, "foo", "unknown_parameter"),
    ({"input": "x", "reasoning": {"foo": 1}}, "reasoning.foo", "unknown_parameter"),
    ({"input": "x", "moderation": {"model": "m"}}, "moderation", "unsupported_parameter"),
    ({"input": "x", "include": ["everything"]}, "include[0]", "invalid_value"),
    (
        {"input": "x", "tools": [{**WEATHER, "output_schema": {}}]},
        "tools[0].output_schema",
        "unsupported_parameter",
    ),
    ({"input": "x", "tools": [{"type": "time_travel"}]}, "tools[0].type", "unsupported_parameter"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "a"}]}]},
        "input[0].content[0].type",
        "unsupported_value",
    ),
    ({"input": "x", "stream": "yes"}, "stream", "invalid_type"),
    ({"input": "x", "reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
    ({"input": "x", "metadata": {"a": 1}}, "metadata.a", "invalid_type"),
    (
        {"input": "x", "metadata": {str(n): "" for n in range(17)}},
        "metadata",
        "object_above_max_properties",
    ),
    (
        {"input": "x", "tools": [{"type": "function"}]},
        "tools[0].name",
        "missing_required_parameter",
    ),
    ({"input": "x", "tools": [WEATHER, WEATHER]}, "tools", "invalid_value"),
    (
        {"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
        "tools[0].type",
        "unsupported_parameter",
    ),
    ({"input": "x", "tools": [UNKNOWN_SERVER]}, "tools[0].server_label", "mcp_server_not_found"),
    (
        {"input": "x", "tools": [{**UNKNOWN_SERVER, "server_url": "file:///etc/passwd"}]},
        "tools[0].server_url",
        "invalid_value",
    ),
    (
        {"input": "x", "tools": [{**UNKNOWN_SERVER, "require_approval": "maybe"}]},
        "tools[0].require_approval",
        "invalid_value",
    ),
    ({"input": "x", "tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    (
        {"input": "x", "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function"}]}},
        "tool_choice.tools[0]",
        "invalid_value",
    ),
    (
        {"input": "x", "text": {"format": {"type": "json_schema"}}},
        "text.format.schema",
        "missing_required_parameter",
    ),
    ({"input": "x", "background": True, "store": False}, "background", "invalid_value"),
    ({"input": "x", "conversation": ["conv_1"]}, "conversation", "invalid_type"),
    (
        {"input": "x", "previous_response_id": "resp_x"},
        "previous_response_id",
        "previous_response_not_found",
    ),
]
"""Bodies that are refused with status 400, and the error's ``param`` and ``code``."""


def plain_option() -> str:
    """Return an MCP server as the value of ``--mcp``."""
    return server_option("plain")
