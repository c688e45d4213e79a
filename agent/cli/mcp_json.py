"""The objects that `agent mcp list|inspect|call --json` print, in MCP's own words where it has them."""

import json
from typing import Any

from agent.util.sanitize import echo, escape_json
from tools.config.servers import ServerConfig
from tools.types import Prompt, Resource, ServerState, Tool, ToolResult


def print_json(value: object) -> None:
    """Print a value on one line, which cannot steer a terminal."""
    echo(escape_json(json.dumps(value, ensure_ascii=False)))


def server_object(state: ServerState, config: ServerConfig) -> dict[str, Any]:
    """Describe a server; ``command`` is as it is written in its file."""
    return {
        "name": state.name,
        "status": state.status,
        "error": state.error,
        "transport": state.transport,
        "protocol": state.protocol or None,
        "protocol_reason": state.protocol_reason or None,
        "needs_login": state.needs_login,
        "command": config.command_line,
        "project": config.from_project,
        "ignored": list(config.ignored),
        "required": state.required,
        "tools": state.tools,
        "skipped_tools": dict(state.skipped),
    }


def inspection_object(
    server: dict[str, Any],
    tools: list[Tool],
    resources: list[Resource],
    prompts: list[Prompt],
    stderr: str,
) -> dict[str, Any]:
    return server | {
        "instructions": next((tool.server_instructions for tool in tools), "") or None,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.parameters,
                "annotations": {"readOnlyHint": tool.read_only},
            }
            for tool in tools
        ],
        "resources": [
            {
                "uriTemplate" if resource.template else "uri": resource.uri,
                "name": resource.name,
                "description": resource.description,
                "mimeType": resource.mime,
            }
            for resource in resources
        ],
        "prompts": [
            {
                "name": prompt.name,
                "description": prompt.description,
                "arguments": [
                    {"name": name, "required": required} for name, required in prompt.arguments
                ],
            }
            for prompt in prompts
        ],
        "stderr": stderr,
    }


def result_object(result: ToolResult) -> dict[str, Any]:
    """Describe a result as MCP's CallToolResult; ``text`` names the files that hold binary data."""
    described: dict[str, Any] = {
        "isError": result.failed,
        "content": result.content,
        "text": result.text,
    }
    if result.failure == "protocol":
        described["error"] = {"code": result.code, "message": result.text}
    if result.structured is not None:
        described["structuredContent"] = result.structured
    return described
