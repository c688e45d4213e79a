"""Names this program's folders and what is in them; ``AGENT_HOME`` puts them all below one folder."""

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from agent.errors import UserError
from agent.util.user_files import expand_path


@dataclass(frozen=True, slots=True)
class Paths:
    """The three folders of this program, and the files in them."""

    config: Path
    """The folder of config.toml, models.toml and mcp.json."""
    cache: Path
    """The folder of expanded and downloaded models; can be deleted at any time."""
    state: Path
    """The folder of the store, the approvals and the logs."""

    @property
    def folders(self) -> tuple[Path, Path, Path]:
        return self.config, self.cache, self.state

    @property
    def store(self) -> Path:
        return self.state / "store.sqlite"

    @property
    def sockets(self) -> Path:
        """Where loaded engines listen for the other programs of this person."""
        if (base := os.environ.get("XDG_RUNTIME_DIR")) and not os.environ.get("AGENT_HOME"):
            return Path(base) / "agent-local"
        return self.state / "engines"

    @property
    def prefix_cache(self) -> Path:
        """KV states of prompts that models have read (`agent.engine.llama.disk_cache`)."""
        return self.cache / "prefixes"

    @property
    def mcp_json(self) -> Path:
        return self.config / "mcp.json"

    @property
    def approvals(self) -> Path:
        """The tools and project folders that the person approved permanently."""
        return self.state / "approvals.json"

    @property
    def audit_log(self) -> Path:
        return self.state / "calls.jsonl"

    @property
    def undo(self) -> Path:
        """The tools' changes of files, by root (`tools.builtin.files.journal`)."""
        return self.state / "undo"

    @property
    def credentials(self) -> Path:
        """OAuth tokens of MCP servers, where the system has no keyring."""
        return self.state / "tokens.json"

    @property
    def log_file(self) -> Path:
        return self.state / "agent.log"


def user_paths() -> Paths:
    """The user's folders: below ``AGENT_HOME``, or the platform's. Raises UserError without a home."""
    if home := os.environ.get("AGENT_HOME"):
        base = expand_path(home)
        return Paths(base / "config", base / "cache", base / "state")
    dirs = platformdirs.PlatformDirs("agent-local", appauthor=False)
    try:
        Path.home()  # which much else needs, also where XDG_CONFIG_HOME and the like are set
        folders = dirs.user_config_dir, dirs.user_cache_dir, dirs.user_state_dir
    except RuntimeError:
        raise UserError("There is no home folder here: set AGENT_HOME to a folder.") from None
    return Paths(*map(Path, folders))
