"""A folder's own servers: what a person is shown of them, and what an agreement counts for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.config.project import Project, admitted, find
from tools.policy.approval_store import Memory


def brought(folder: Path, servers: Any) -> Project:
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    found = find(folder, {})
    assert found is not None
    return found


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
def test_what_is_not_written_right_is_shown_with_what_is_wrong(
    tmp_path: Path, entry: Any, says: str
) -> None:
    project = brought(tmp_path, {"a": entry})
    (line,) = project.commands()
    assert line.startswith("a: ") and says in line and not project.possible


def test_a_command_is_shown_to_its_end(tmp_path: Path) -> None:
    entry = {"command": "sh", "args": ["-c", "true;" + " " * 9000 + "\n\u202eevil"]}
    (line,) = brought(tmp_path, {"a": entry}).commands()
    assert line.endswith(" \\nevil'")


def test_a_name_that_reads_like_a_tools_is_refused(tmp_path: Path) -> None:
    (server,) = brought(tmp_path, {"files.write": {"command": "x"}}).servers
    assert server.problem is not None and "no dot in its name" in server.problem


def test_an_agreement_counts_for_what_was_shown(tmp_path: Path) -> None:
    shown = brought(tmp_path, {"a": {"command": "x"}})
    changed = brought(tmp_path, {"a": {"command": "evil"}})
    memory = Memory(None, tmp_path)
    (refused,) = admitted(changed, memory, trust=shown.digest)
    assert refused.problem is not None and not changed.trusted(memory)
    (agreed,) = admitted(shown, memory, trust=shown.digest)
    assert agreed.problem is None and shown.trusted(memory)
