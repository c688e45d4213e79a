"""Where things lie: the folders of configuration, cache, state and logs.

``AGENT_HOME`` puts all of them below one folder (tests, portable installs).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True, slots=True)
class Places:
    config: Path
    """models.toml"""
    cache: Path
    """Expanded and downloaded models; can be deleted at any time."""
    state: Path
    """The store of conversations, and the log file."""

    @property
    def store(self) -> Path:
        return self.state / "store.sqlite"

    @property
    def log(self) -> Path:
        return self.state / "agent.log"


def places() -> Places:
    if home := os.environ.get("AGENT_HOME"):
        base = Path(home).expanduser()
        return Places(base / "config", base / "cache", base / "state")
    dirs = platformdirs.PlatformDirs("agent-local", appauthor=False)
    return Places(Path(dirs.user_config_dir), Path(dirs.user_cache_dir), Path(dirs.user_state_dir))
