"""What `agent doctor` says of this machine."""

from pathlib import Path

import pytest

from agent.cli import doctor
from agent.config.paths import Paths
from tools.sandbox import isolation
from tools.sandbox.isolation import Isolation


@pytest.mark.parametrize("name", ["landlock", "bubblewrap"])
def test_builtin_tools_landlock_alone_limits_the_shell(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "best_isolation", lambda: Isolation(name, "works", True))
    checks = list(doctor._builtin_tools(Paths(tmp_path, tmp_path, tmp_path)))
    limited = [(subject, text) for subject, state, text in checks if state == "limited"]
    expected = [("shell tool", doctor.LANDLOCK_LIMITS)] if name == "landlock" else []
    assert limited == expected and "mkdir" in doctor.LANDLOCK_LIMITS
