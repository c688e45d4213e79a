"""What people write into mcp.json and on the command line, right and wrong."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.files.server import FilesServer
from tools.builtin.python.server import PythonServer
from tools.builtin.shell.server import ShellServer
from tools.config.file import read_servers
from tools.config.servers import ConfigError, ServerConfig, merge, parse_server
from tools.factory import ToolboxOptions, build_toolbox
from tools.mcp.stdio import environment
from tools.policy.approvals import Policy, parse_rules
from tools.sandbox.isolation import Isolation
from tools.selection import select_servers
from tools.types import Tool

ENV = {"TOKEN": "t0", "EMPTY": ""}


def write(path: Path, servers: Any) -> Path:
    file = path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def test_read_servers_pasted_entries(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {
            "memory": {"command": "npx", "args": ["-y", "server-memory"]},
            "git": {
                "type": "stdio",
                "command": "uvx",
                "args": ["mcp-server-git", "--repository", "${REPO:-/srv/it}"],
                "env": {"TOKEN": "Bearer ${TOKEN}", "KEEP": "$HOME ${"},
                "cwd": "/srv",
                "required": True,
                "startup_timeout_sec": 5,
                "tool_timeout_sec": 600,
                "enabled_tools": ["log"],
                "disabled_tools": ["push"],
                "somebody's own key": 1,
            },
            "web": {"url": "https://example.org/mcp", "headers": {"X": "${EMPTY:-none}"}},
            "off": {"command": "x", "disabled": True},
            "off too": {"command": "x", "enabled": False},
        },
    )
    memory, git, web, off, off_too = read_servers(file, ENV)
    assert (memory.name, memory.command, memory.args) == ("memory", "npx", ("-y", "server-memory"))
    assert (memory.enabled, memory.startup_timeout_sec, memory.tool_timeout_sec) == (True, 30, 120)
    assert git.args[-1] == "/srv/it"
    assert git.env == {"TOKEN": "Bearer t0", "KEEP": "$HOME ${"}
    assert (git.cwd, git.required, git.startup_timeout_sec) == ("/srv", True, 5)
    assert git.offers("log") and not git.offers("status") and not git.offers("push")
    assert (web.url, web.command, web.headers) == ("https://example.org/mcp", "", {"X": "none"})
    assert not off.enabled and not off_too.enabled
    assert not any(server.trusted for server in (memory, git, web))


@pytest.mark.parametrize(
    ("servers", "says"),
    [
        ({"a": {"command": "${MISSING}"}}, ": the environment variable MISSING is not"),
        ({"a": {}}, ": needs a command"),
        ({"a": {"type": "http", "command": "x"}}, "needs a url"),
        ({"a": {"type": "smoke", "command": "x"}}, "unknown type 'smoke'; known: stdio"),
        (
            {"a": {"command": "x", "url": "http://y"}},
            "has a command and a url; remove one of them",
        ),
        ({"a": {"url": "${EMPTY}", "httpUrl": "http://y"}}, "has a url and a httpUrl"),
        ({"a": {"url": "example.org/mcp"}}, "the url must begin with https:// or http://"),
        ({"a": "npx"}, "must be an object"),
        ({"a": {"command": ["x"]}}, "command must be a string"),
        ({"a": {"command": "x", "args": "y"}}, "args must be a list of strings"),
        ({"a": {"command": "x", "env": {"A": 1}}}, "env must map names to strings"),
        ({"a": {"command": "x", "tool_timeout_sec": "1"}}, "must be a number of seconds"),
        ({"a": {"command": "x", "tool_timeout_sec": 0}}, "must be a number of seconds"),
        ({"a": {"command": "x", "enabled": "no"}}, "enabled must be true or false"),
        ([], 'has no "mcpServers" object'),
    ],
)
def test_read_servers_wrong_entry_raises_sentence(tmp_path: Path, servers: Any, says: str) -> None:
    file = write(tmp_path, servers)
    with pytest.raises(ConfigError) as caught:
        read_servers(file, ENV)
    begin = f"the server a cannot be used: {file}: " if isinstance(servers, dict) else str(file)
    assert says in str(caught.value) and str(caught.value).startswith(begin)


def test_read_servers_unreadable_file_raises(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    with pytest.raises(ConfigError, match=r"cannot read .*mcp\.json: No such file"):
        read_servers(file, ENV)
    file.write_text('{"mcpServers": {\n  "a": {,}\n}}')
    with pytest.raises(ConfigError, match=r"not valid JSON: .* at line 2, column 9"):
        read_servers(file, ENV)
    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_servers(file, ENV)
    file.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_servers(file, ENV)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="is a pipe"):
        read_servers(file, ENV)


def test_parse_server_command_line_option() -> None:
    server = parse_server("time=uvx 'mcp server time' --tz=UTC")
    assert (server.name, server.command) == ("time", "uvx")
    assert server.args == ("mcp server time", "--tz=UTC")
    assert server.trusted
    assert parse_server("web=https://example.org/mcp").url == "https://example.org/mcp"
    for wrong in ("time", "=x", "time=", "time='"):
        with pytest.raises(ConfigError, match="--mcp"):
            parse_server(wrong)


def test_merge_same_name_later_wins() -> None:
    first, second = ServerConfig("a", command="1"), ServerConfig("a", command="2")
    assert merge([first, ServerConfig("b")], [second])[0] is second


BUILTINS = [
    ServerConfig(builtin.name, builtin=builtin)
    for builtin in (PythonServer(), FilesServer(Path("/")), ShellServer(Path("/x")))
]
SERVERS = [*BUILTINS, ServerConfig("git", command="x", enabled_tools=("log", "show"))]


def test_select_servers_by_names() -> None:
    assert [server.name for server in select_servers("all", SERVERS)] == [
        "code_interpreter",
        "files",
        "git",
    ]
    assert select_servers("all,shell", SERVERS)[2] == SERVERS[2]
    assert select_servers("none", SERVERS) == []
    assert [server.name for server in select_servers("git, python", SERVERS)] == [
        "code_interpreter",
        "git",
    ]
    (files,) = select_servers("files.read,files.list", SERVERS)
    assert files.offers("read") and not files.offers("search")
    assert select_servers("files.read,files", SERVERS) == [SERVERS[1]]
    (git,) = select_servers("git.log,git.push", SERVERS)
    assert git.enabled_tools == ("log",)
    for wrong in ("gti", "files.format", "python.x"):
        with pytest.raises(ConfigError, match=f"{wrong}.*known: python, files, shell, git"):
            select_servers(wrong, SERVERS)


def decide(rules: str, server: ServerConfig, tool: str) -> str:
    return (
        Policy(parse_rules(rules, [server]))
        .decide(Tool(server.name, tool, "", {}), server)
        .decision
    )


def test_policy_command_line_rules() -> None:
    git = ServerConfig("git", command="x")
    assert decide("", git, "log") == "ask"
    assert decide("git", git, "log") == decide("git.log", git, "log") == "allow"
    assert decide("git.log", git, "push") == "ask"
    assert decide("all", git, "push") == "allow"
    assert decide("", parse_server("git=x"), "push") == "allow"
    assert decide("", SERVERS[1], "read") == "allow"
    safe = ServerConfig(
        "code_interpreter", builtin=PythonServer(isolation=Isolation("x", "", True))
    )
    bare = ServerConfig(
        "code_interpreter", builtin=PythonServer(isolation=Isolation("none", "", False))
    )
    assert decide("", safe, "python") == "allow"
    assert decide("", bare, "python") == decide("all", bare, "python") == "ask"
    assert decide("python", bare, "python") == "allow"
    shell = ServerConfig("shell", builtin=ShellServer())
    assert (decide("", shell, "exec"), decide("all", shell, "exec")) == ("ask", "allow")
    assert (decide("", SERVERS[1], "write"), decide("all", SERVERS[1], "write")) == ("ask", "allow")
    with pytest.raises(ConfigError, match="'gti'; known: all, git"):
        decide("gti", git, "log")


def test_toolbox_same_name_replaces_builtin_server(tmp_path: Path) -> None:
    file = write(tmp_path, {"git": {"command": "x"}})
    box = build_toolbox(
        ToolboxOptions(mcp_config=[file], mcp=["files=my-files"], tools="files,git", root=tmp_path)
    )
    assert [server.name for server in box.host.server_states()] == ["files", "git"]
    config = box.host.server_config("files")
    assert config is not None and config.command == "my-files"
    assert box.host.server_config("code_interpreter") is None


def test_toolbox_servers_name_the_folder(tmp_path: Path) -> None:
    entry = {"command": "fs", "args": ["${workspaceFolder}/src"], "cwd": "${userHome}"}
    write(tmp_path, {"project": entry}).rename(tmp_path / ".mcp.json")
    named = write(tmp_path, {"named": entry}).rename(tmp_path / "named.json")
    user = write(tmp_path, {"user": entry})
    box = build_toolbox(
        ToolboxOptions(
            user_config=user, mcp_config=[named], root=tmp_path, trust_project=True, tools="all"
        )
    )
    for name in ("user", "named", "project"):
        config = box.host.server_config(name)
        assert config is not None and config.args == (f"{tmp_path}/src",)
        assert config.cwd == str(Path.home()) and "${workspaceFolder}" in config.command_line


def test_toolbox_own_servers_start_in_their_file_s_folder(tmp_path: Path) -> None:
    """A stranger's folder has modules and packages of any name; an absolute path needs no folder."""
    entries: dict[str, dict[str, Any]] = {
        "module": {"command": "python3", "args": ["-m", "mcp_server_time"]},
        "folder_module": {"command": "python3", "args": ["-m", "x", "${workspaceFolder}"]},
        "package": {"command": "npx", "args": ["-y", "fs", "${workspaceFolder}"]},
        "script": {"command": "node", "args": ["/srv/server.js"]},
        "folder": {"command": "fs", "env": {"ROOT": "${workspaceFolder}"}},
        "cwd": {"command": "npx", "args": ["fs"], "cwd": "${workspaceFolder}"},
    }
    (tmp_path / "config").mkdir()
    write(tmp_path, entries).rename(tmp_path / ".mcp.json")
    mine = write(tmp_path / "config", entries)
    box = build_toolbox(ToolboxOptions(user_config=mine, root=tmp_path, mcp=["typed=python3 -m x"]))
    configs = {name: box.host.server_config(name) for name in (*entries, "typed")}
    folders = {name: config and config.start_folder for name, config in configs.items()}
    there = tmp_path / "config"
    assert folders == dict.fromkeys(entries, there) | dict.fromkeys(("folder", "cwd", "typed"))
    safe = {
        n for n, config in configs.items() if config and "PYTHONSAFEPATH" in environment(config)
    }
    assert safe == {"module", "folder_module"}


def test_secrets_digest_changes_with_environment(tmp_path: Path) -> None:
    def read(value: str) -> ServerConfig:
        entry = {"command": "x", "env": {"KEY": value}}
        return read_servers(write(tmp_path, {"a": entry}), {"KEY": "k", "OTHER": "k"})[0]

    first, second = read("${KEY}"), read("${OTHER}")
    assert first.env == second.env and first.secrets_digest != second.secrets_digest


def test_command_line_hides_url_password_digest_has_it(
    tmp_path: Path,
) -> None:
    def read(password: str) -> ServerConfig:
        entry = {"url": f"https://me:{password}@example.org/mcp?a=b"}
        return read_servers(write(tmp_path, {"a": entry}), {})[0]

    first, second = read("SESAME"), read("other")
    assert first.command_line == second.command_line == "https://me:…@example.org/mcp?a=b"
    assert (
        first.url == "https://me:SESAME@example.org/mcp?a=b"
        and first.secrets_digest != second.secrets_digest
    )
