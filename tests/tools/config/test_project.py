"""A folder's own servers: what a person is shown of them, and what an agreement counts for."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tools.config.named_files import server_files
from tools.policy.approval_store import ApprovalStore
from tools.policy.project import ProjectConfig, approved_servers, find_project


def make_project(folder: Path, servers: Any) -> ProjectConfig:
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    project = find_project(folder, {})
    assert project is not None
    return project


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"command": "x", "env": ["A=1"]}, "env must map"),
        ({"command": "x", "args": 5}, "args must be a list"),
        ({"command": 5, "args": {"a": 1}}, "command must be"),
        ({"url": "x", "cwd": "y", "headers": 7}, "headers must map"),
        ({"command": "x", "args": ["${MISSING}"]}, "MISSING is not set"),
    ],
)
def test_command_lines_wrong_entry_lists_problem(tmp_path: Path, entry: Any, says: str) -> None:
    project = make_project(tmp_path, {"a": entry})
    (line,) = project.command_lines()
    assert line.startswith("a: ") and says in line and not project.startable


def test_command_lines_long_command_not_shortened(tmp_path: Path) -> None:
    entry = {"command": "sh", "args": ["-c", "true;" + " " * 9000 + "\n\u202eevil"]}
    (line,) = make_project(tmp_path, {"a": entry}).command_lines()
    assert line.endswith(" \\nevil'  (in a sandbox)")


def test_untrusted_server_problem_is_one_line(tmp_path: Path) -> None:
    project = make_project(tmp_path, {"a": {"command": "x", "args": ["\nagent: all is trusted"]}})
    (server,) = approved_servers(project, ApprovalStore(None, tmp_path), trust=False)
    assert server.problem is not None and "\n" not in server.problem


@pytest.mark.parametrize(
    ("text", "says"), [("\0" * (2 << 20), "longer than 1 MiB"), ("1" * 5000, "a number")]
)
def test_project_file_without_bounds_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / ".mcp.json").write_text(text)
    project = find_project(tmp_path, {})
    assert project is not None and says in (project.servers[0].problem or "")


def test_project_server_name_with_dot_refused(tmp_path: Path) -> None:
    (server,) = make_project(tmp_path, {"files.write": {"command": "x"}}).servers
    assert server.problem is not None and "no dot in its name" in server.problem


def test_trust_counts_for_one_digest_only(tmp_path: Path) -> None:
    original = make_project(tmp_path, {"a": {"command": "x"}})
    changed = make_project(tmp_path, {"a": {"command": "evil"}})
    store = ApprovalStore(None, tmp_path)
    (refused,) = approved_servers(changed, store, trust=original.digest)
    assert refused.problem is not None and not store.trusts("servers", changed.digest)
    (agreed,) = approved_servers(original, store, trust=original.digest)
    assert agreed.problem is None and store.trusts("servers", original.digest)


def test_project_servers_start_in_its_folder(tmp_path: Path) -> None:
    entries = {
        "a": {"command": "./x"},
        "b": {"command": "x", "cwd": "sub"},
        "c": {"command": "x", "cwd": "/srv"},
    }
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    project = find_project(tmp_path)
    assert project is not None
    folders = [server.cwd for server in project.servers]
    assert folders == [str(tmp_path), f"{tmp_path}/sub", "/srv"]


def test_command_lines_name_what_of_this_machine_servers_get(tmp_path: Path) -> None:
    secret = "${AWS_SECRET_ACCESS_KEY}"
    servers = {
        "docs": {
            "url": "http://a.example/mcp",
            "oauth": {"client_id": "x", "client_secret": secret},
        },
        "more": {"url": f"http://u:{secret}@a.example/mcp"},
        "own": {"url": "http://u:hunter2@a.example/mcp"},
        "here": {"command": "x", "workDir": "/usr/lib"},
    }
    make_project(tmp_path, servers)
    project = find_project(tmp_path, {"AWS_SECRET_ACCESS_KEY": "TOPSECRET"})
    assert project is not None
    docs, more, own, here = project.command_lines()
    assert secret in docs and secret in more and "(in /usr/lib)" in here
    assert "TOPSECRET" not in docs + more and "hunter2" not in own


def test_env_file_is_a_file_of_its_folder(tmp_path: Path) -> None:
    (outside := tmp_path / "creds").write_text("SECRET=hunter2")
    (root := tmp_path / "root").mkdir()
    (root / "link").symlink_to(outside)
    os.mkfifo(root / "pipe")
    (root / ".env").write_text("TOKEN=1")
    for name, problem in (
        ("link", "outside of its folder"), ("../creds", "outside of its folder"),
        (str(outside), "outside of its folder"), ("pipe", "not a regular file"), (".env", None),
    ):  # fmt: skip
        project = make_project(root, {"a": {"command": "x", "envFile": name}})
        (server,) = project.servers
        assert (server.problem is None) == (problem is None) and (problem or "") in (
            server.problem or ""
        )
    assert server.env == {"TOKEN": "1"}
    assert root / ".env" in server_files(root, [server]).paths
