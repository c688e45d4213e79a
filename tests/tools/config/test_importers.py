"""Files of other MCP clients, right and wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.config.importers import find_client_servers


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (".cursor/mcp.json", '{"mcpServers": ["a"]}', "its servers are not a JSON object"),
        (".claude.json", '{"projects": {"p": {"mcpServers": 3}}}', "are not a JSON object"),
        (".codex/config.toml", "mcp_servers = [1]", "its servers are not a TOML table"),
        (".cursor/mcp.json", '{ /* a\nb */ "a": "//", // c\n"b": }', "at line 3, column 6"),
    ],
)
def test_wrong_file_is_a_problem_in_a_sentence(
    tmp_path: Path, file: str, text: str, problem: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    (source,) = find_client_servers(tmp_path)
    assert source.entries == {} and problem in source.problems[0]


def imported(home: Path, files: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The entries and problems of these files: JSON, or text as it is."""
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        dump = yaml.safe_dump if path.suffix == ".yaml" else json.dumps
        path.write_text(content if isinstance(content, str) else dump(content))
    sources = list(find_client_servers(home))
    entries = {name: entry for source in sources for name, entry in source.entries.items()}
    return entries, [problem for source in sources for problem in source.problems]


X = {"command": "x"}


@pytest.mark.parametrize(
    ("files", "entries"),
    [
        (
            {
                ".gemini/settings.json": {
                    "mcpServers": {
                        "a": {
                            **X,
                            "excludeTools": ["d"],
                            "includeTools": ["c"],
                            "env": {"K": "$KEY ${B}"},
                        },
                        "b": {"httpUrl": "http://h/mcp"},
                        "c": X,
                    },
                    "mcp": {"excluded": ["b"], "allowed": ["a", "b"]},
                }
            },
            {
                "a": {
                    **X,
                    "env": {"K": "${KEY} ${B}"},
                    "enabled_tools": ["c"],
                    "disabled_tools": ["d"],
                },
                "b": {"url": "http://h/mcp", "disabled": True},
                "c": {**X, "disabled": True},
            },
        ),
        (
            {
                ".codeium/windsurf/mcp_config.json": {
                    "mcpServers": {
                        "a": {
                            "serverUrl": "https://h/mcp",
                            "disabledTools": ["d"],
                            "disabled": True,
                        }
                    }
                }
            },
            {"a": {"url": "https://h/mcp", "disabled": True, "disabled_tools": ["d"]}},
        ),
        (
            {".cursor/mcp.json": {"mcpServers": {"a": {**X, "enabled": False}}}},
            {"a": {**X, "disabled": True}},
        ),
        (
            {".lmstudio/mcp.json": {"mcpServers": {"a": {**X, "includeTools": []}}}},
            {"a": {**X, "enabled_tools": []}},
        ),
        (
            {
                ".claude.json": {
                    "projects": {
                        "/p": {"mcpServers": {"a": X, "b": X}, "disabledMcpServers": ["a"]}
                    }
                },
                ".claude/settings.json": {"permissions": {"deny": ["mcp__b__d", "Bash(rm:*)"]}},
            },
            {"a": {**X, "disabled": True}, "b": {**X, "disabled_tools": ["d"]}},
        ),
        (
            {
                ".codex/config.toml": '[mcp_servers.a]\ncommand = "x"\nenv_vars = [{name = "K"}]\n'
                "startup_timeout_ms = 60000\nenabled_tools = []\n"
                "[mcp_servers.a.tools.d]\nenabled = false\n"
            },
            {
                "a": {
                    **X,
                    "env": {"K": "${K}"},
                    "startup_timeout_ms": 60000,
                    "enabled_tools": [],
                    "disabled_tools": ["d"],
                }
            },
        ),
        (
            {
                ".config/opencode/opencode.jsonc": {
                    "mcp": {
                        "a": {
                            "type": "local",
                            "command": ["x", "y"],
                            "environment": {"K": "{env:KEY}"},
                            "timeout": 9000,
                        },
                        "b": {"type": "remote", "url": "http://h", "enabled": False},
                        "c.d": {"type": "local", "command": ["x"]},
                    },
                    "tools": {"a_d": False, "c_d*": False},
                    "permission": {"a_e": "deny", "bash": {"*": "ask"}},
                }
            },
            {
                "a": {
                    "type": "local",
                    **X,
                    "args": ["y"],
                    "env": {"K": "${KEY}"},
                    "startup_timeout_ms": 9000,
                    "disabled_tools": ["d", "e"],
                },
                "b": {"type": "remote", "url": "http://h", "disabled": True},
                "c.d": {"type": "local", **X, "disabled": True},
            },
        ),
        (
            {
                ".config/goose/config.yaml": {
                    "extensions": {
                        "a": {
                            "type": "stdio",
                            "cmd": "x",
                            "env_keys": ["K"],
                            "envs": {},
                            "enabled": False,
                            "timeout": 3000,
                        },
                        "b": {
                            "type": "streamable_http",
                            "uri": "http://h",
                            "available_tools": ["c"],
                            "enabled": True,
                        },
                        "developer": {"type": "builtin", "enabled": True},
                    }
                },
                ".config/goose/permission.yaml": {"user": {"never_allow": ["b__d"]}},
            },
            {
                "a": {
                    "type": "stdio",
                    **X,
                    "env": {"K": "${K}"},
                    "disabled": True,
                    "tool_timeout_sec": 3000,
                },
                "b": {
                    "type": "streamable_http",
                    "url": "http://h",
                    "enabled_tools": ["c"],
                    "disabled_tools": ["d"],
                },
            },
        ),
        (
            {
                ".config/zed/settings.json": '// Zed\n{"context_servers": {"a": '
                '{"source": "custom", "command":'
                ' {"path": "x", "args": ["y"]}}, "b": {"command": "x", "enabled": false,},}, "agent":'
                ' {"tool_permissions": {"tools": {"mcp:a:d": {"default": "deny"}}}}}'
            },
            {"a": {**X, "args": ["y"], "disabled_tools": ["d"]}, "b": {**X, "disabled": True}},
        ),
    ],
)
def test_import_keeps_what_is_forbidden(
    tmp_path: Path, files: dict[str, Any], entries: dict[str, Any]
) -> None:
    assert imported(tmp_path, files) == (entries, [])


def test_import_says_what_it_leaves_out(tmp_path: Path) -> None:
    servers = {
        "a": {**X, "trust": True, "alwaysAllow": ["t"], "headersHelper": "h", "description": "d"},
        "ws": {"type": "ws", "url": "http://h"},
        "twice": {**X, "includeTools": ["a"], "enabled_tools": ["b"]},
    }
    entries, problems = imported(tmp_path, {".cursor/mcp.json": {"mcpServers": servers}})
    assert entries == {"a": X}
    path = tmp_path / ".cursor/mcp.json"
    assert problems == [
        f"{path}: 'a' is imported without headersHelper, trust, alwaysAllow",
        f"{path}: 'ws' unknown type 'ws'; known: stdio, http, sse",
        f"{path}: 'twice' has a includeTools and a enabled_tools",
    ]
