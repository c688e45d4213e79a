"""What people write into mcp.json and on the command line, right and wrong."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tools.builtin.files.server import FilesServer
from tools.builtin.python.server import PythonServer
from tools.builtin.shell.server import ShellServer
from tools.config.edit import add
from tools.config.file import read_servers
from tools.config.servers import (
    ConfigError,
    OAuthSettings,
    SandboxSettings,
    ServerConfig,
    merge,
    parse_server,
)
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
    assert memory.enabled and memory.tool_timeout_sec == 120
    assert memory.startup_timeout_sec == ServerConfig("any").startup_timeout_sec
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
        ({"a": {"command": "x", "url": "http://y"}}, "has a command and a url; remove one of them"),
        ({"a": {"url": "${EMPTY}", "httpUrl": "http://y"}}, "has a url and a httpUrl"),
        ({"a": {"url": "example.org/mcp"}}, "the url must begin with https:// or http://"),
        ({"a": "npx"}, "must be an object"),
        ({"a": {"command": [["x"]]}}, "command must be a string"),
        ({"a": {"command": "x", "includeTools": ["y"], "enabled_tools": ["z"]}}, "remove one of"),
        ({"a": {"command": "x", "excludeTools": "y"}}, "disabled_tools must be a list of strings"),
        (
            {"a": {"command": "x", "args": ["${file:/etc/passwd}"]}},
            "${file:/etc/passwd} is not sup",
        ),
        (
            {"a": {"url": "http://h", "oauth": {"grant_type": "client_credentials"}}},
            "oauth.grant_type client_credentials needs a client_secret",
        ),
        (
            {"a": {"url": "http://h", "oauth": {"grant_type": "x"}}},
            "oauth.grant_type must be autho",
        ),
        (
            {"a": {"command": "x", "envFile": "none.env"}},
            "has an envFile that cannot be read: No such",
        ),
        ({"a": {"command": "x", "args": "y"}}, "args must be a list of strings"),
        ({"a": {"command": "x", "env": {"A": [1]}}}, "env must map names to strings"),
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


def read_entry_of(folder: Path, entry: Any) -> ServerConfig:
    (server,) = read_servers(write(folder, {"a": entry}), ENV)
    return server


@pytest.mark.parametrize(
    ("entry", "offered"),
    [
        ({"excludeTools": ["push"]}, "log status"),
        ({"disabledTools": ["push", "log"]}, "status"),
        ({"disabled-tools": ["*"]}, ""),
        ({"disabled_tools": ["p*"]}, "log status"),
        ({"includeTools": ["log"]}, "log"),
        ({"allowedTools": []}, ""),
        ({"available_tools": []}, "log push status"),
        ({"availableTools": ["l*"]}, "log"),
        ({"includeTools": ["log", "push"], "excludeTools": ["push"], "trust": True}, "log"),
        ({"tools": ["log"]}, "log"),
        ({"tools": {"push": False, "log": {"enabled": False}}}, "status"),
    ],
)
def test_read_servers_tools_that_other_clients_do_not_offer(
    tmp_path: Path, entry: dict[str, Any], offered: str
) -> None:
    server = read_entry_of(tmp_path, {"command": "x", **entry})
    assert [tool for tool in ("log", "push", "status") if server.offers(tool)] == offered.split()
    assert server.ignored == ()


@pytest.mark.parametrize("off", [{"isActive": False}, {"enabled": False}, {"isDisabled": True}])
def test_read_servers_switched_off_elsewhere(tmp_path: Path, off: dict[str, bool]) -> None:
    assert not read_entry_of(tmp_path, {"command": "x", **off}).enabled


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        ({"type": "local", "command": ["npx", "-y", 1]}, {"command": "npx", "args": ("-y", "1")}),
        (
            {"command": {"path": "x", "args": ["y"], "env": {"A": "b"}}},
            {"command": "x", "args": ("y",), "env": {"A": "b"}},
        ),
        (
            {"cmd": "x", "envs": {"A": 1, "B": True, "C": None}, "env_keys": ["TOKEN"]},
            {"command": "x", "env": {"A": "1", "B": "true", "TOKEN": "t0"}},
        ),
        (
            {"command": "x", "env_vars": ["TOKEN", {"name": "EMPTY", "source": "local"}]},
            {"env": {"TOKEN": "t0", "EMPTY": ""}},
        ),
        (
            {"type": "HTTP", "serverUrl": " http://h/mcp"},
            {"url": "http://h/mcp", "transport": "http"},
        ),
        ({"type": "streamable_http", "uri": "http://h"}, {"url": "http://h", "transport": "http"}),
        ({"transport": "sse", "url": "http://h"}, {"transport": "sse"}),
        ({"type": "remote", "url": "http://h", "oauth": False}, {"transport": ""}),
        (
            {
                "url": "http://h",
                "bearer_token_env_var": "TOKEN",
                "env_http_headers": {"X": "EMPTY"},
            },
            {"headers": {"X": "", "Authorization": "Bearer t0"}},
        ),
        (
            {"command": "~/bin/x", "cwd": "~"},
            {"command": f"{Path.home()}/bin/x", "cwd": str(Path.home())},
        ),
        ({"command": "x", "startup_timeout_ms": 60_000}, {"startup_timeout_sec": 60.0}),
        ({"command": "x", "initTimeout": 90}, {"startup_timeout_sec": 90.0}),
        (
            {"command": "x", "timeout": {"startup": 500, "request": 2500}},
            {"startup_timeout_sec": 0.5, "tool_timeout_sec": 2.5},
        ),
        ({"command": "x", "timeout": None, "url": ""}, {"tool_timeout_sec": 120.0, "url": None}),
        ({"command": "x", "alwaysAllow": ["*"]}, {"rules": {"": "allow"}}),
        ({"command": "x", "tools": {"t": {"approval_mode": "prompt"}}}, {"rules": {"t": "ask"}}),
        (
            {
                "command": "x",
                "sandboxEnabled": True,
                "sandbox": {
                    "filesystem": {"allowWrite": ["w"]},
                    "network": {"allowedDomains": ["h.example"]},
                },
            },
            {"sandbox": SandboxSettings(("w",), ("h.example",))},
        ),
        (
            {"url": "http://h", "auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "s", "scopes": ["r"]}},
            {"oauth": OAuthSettings("c", "s", ("r",))},
        ),
        ({"url": "http://h", "scopes": ["r"]}, {"oauth": OAuthSettings(scopes=("r",))}),
    ],
)
def test_read_servers_spellings_of_other_clients(
    tmp_path: Path, entry: dict[str, Any], values: dict[str, Any]
) -> None:
    server = read_entry_of(tmp_path, entry)
    assert {key: getattr(server, key) for key in values} == values
    assert server.ignored == ()


def test_read_servers_reports_what_is_not_understood(tmp_path: Path) -> None:
    entry = {
        "command": "x",
        "description": "says nothing",
        "_comment": "nor this",
        "headersHelper": "/bin/x",
        "oauth": {"authorizationUrl": "http://h"},
        "tools": {"t": {"colour": "red"}},
        "sandboxEnabled": True,
        "sandbox": {"filesystem": {"denyRead": ["/"]}},
    }
    ignored = {"headersHelper", "oauth.authorizationUrl", "tools.t.colour", "sandbox.denyRead"}
    assert set(read_entry_of(tmp_path, entry).ignored) == ignored


def test_read_servers_file_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(
        '{ // of VS Code\n"servers": {"_note": "x", "a": {"command": "//x", /* , */'
        ' "args": ["y",],}, }}'
    )
    (server,) = read_servers(file, ENV)
    assert (server.command, server.args) == ("//x", ("y",))
    with pytest.raises(ConfigError, match="has comments or trailing commas, so change it by hand"):
        add(file, {"b": {"command": "x"}})


def test_read_servers_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "# keys\nexport A=one # more\nB = \"two # 2\\n\"\nC='three'\nD=\nTOKEN=file\n"
    )
    entry = {"command": "x", "envFile": ".env", "env": {"TOKEN": "${TOKEN}"}}
    env = {"A": "one", "B": "two # 2\n", "C": "three", "D": "", "TOKEN": "t0"}
    assert read_entry_of(tmp_path, entry).env == env
    assert (
        read_entry_of(tmp_path, entry).secrets_digest
        != read_entry_of(tmp_path, {"command": "x"}).secrets_digest
    )
    work = tmp_path / "work"
    work.mkdir()
    (work / ".env").write_text("LD_PRELOAD=/x.so")
    (tmp_path / "link.env").symlink_to(work / ".env")
    for name in ("${workspaceFolder}/.env", "work/.env", "link.env"):
        file = write(tmp_path, {"a": {"command": "x", "envFile": name}})
        (config := tmp_path / "config").mkdir(exist_ok=True)
        mine = config / "mcp.json"
        mine.write_text(
            file.read_text().replace('"work/', '"../work/').replace('"link', '"../link')
        )
        with pytest.raises(ConfigError, match="no envFile in the folder that you work in"):
            read_servers(mine, {**ENV, "workspaceFolder": str(work)})


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


def test_command_line_hides_url_password_digest_has_it(tmp_path: Path) -> None:
    def read(password: str) -> ServerConfig:
        entry = {"url": f"https://me:{password}@example.org/mcp?a=b"}
        return read_servers(write(tmp_path, {"a": entry}), {})[0]

    first, second = read("SESAME"), read("other")
    assert first.command_line == second.command_line == "https://me:…@example.org/mcp?a=b"
    assert (
        first.url == "https://me:SESAME@example.org/mcp?a=b"
        and first.secrets_digest != second.secrets_digest
    )
