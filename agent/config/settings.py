"""Where things lie: the folders of configuration, cache, state and logs; and what is set there.

``AGENT_HOME`` puts all of them below one folder (tests, portable installs).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import platformdirs

from agent.errors import UserError
from tools import private_files

if TYPE_CHECKING:
    from tools.builtin.browser.settings import BrowserSettings


@dataclass(frozen=True, slots=True)
class Places:
    config: Path
    """config.toml, models.toml, mcp.json"""
    cache: Path
    """Expanded and downloaded models; can be deleted at any time."""
    state: Path
    """The store of conversations, what was approved, and the log files."""

    @property
    def store(self) -> Path:
        return self.state / "store.sqlite"

    @property
    def servers(self) -> Path:
        """The person's own MCP servers."""
        return self.config / "mcp.json"

    @property
    def approvals(self) -> Path:
        """The tools and folders that the person allowed for good."""
        return self.state / "approvals.json"

    @property
    def calls(self) -> Path:
        """The log of what was allowed and refused."""
        return self.state / "calls.jsonl"

    @property
    def tokens(self) -> Path:
        """Logins to servers, where the system has no keyring."""
        return self.state / "tokens.json"

    @property
    def log(self) -> Path:
        return self.state / "agent.log"


def places() -> Places:
    if home := os.environ.get("AGENT_HOME"):
        base = Path(home).expanduser()
        return Places(base / "config", base / "cache", base / "state")
    dirs = platformdirs.PlatformDirs("agent-local", appauthor=False)
    return Places(Path(dirs.user_config_dir), Path(dirs.user_cache_dir), Path(dirs.user_state_dir))


@dataclass(frozen=True, slots=True)
class Settings:
    """What config.toml says; None: nothing."""

    compact: Literal["auto", "off"] | None = None
    """Whether a full context is compacted (`compact.py`); unset: in the app alone."""
    model: str | None = None
    """The model where --model is not given."""
    keep_alive: float | None = None
    """Seconds without a turn after which the model is unloaded; unset: never."""
    unsandboxed_python: bool = False
    """Where no isolation works: offer python all the same, and ask before every call."""
    browser: BrowserSettings | None = None
    """Where the browser searches, and which private networks it may open."""
    theme: str | None = None
    """The app's colours; also set by choosing one there."""
    animations: bool = True
    """Whether anything in the app moves by itself: scrolling, the cursor's blinking."""
    responses_days: float | None = None
    """How long the endpoint's responses are kept; unset: 30."""
    responses_most: int | None = None
    """How many of them are kept; unset: 10000."""


def settings(where: Places) -> Settings:
    """Raises UserError, which names the file and what is wrong with it."""
    path = where.config / "config.toml"
    given: dict[str, Any]
    try:
        import tomllib

        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        given = {}
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path}: {error}") from error
    match given:
        case {"compact": other} if other not in ("auto", "off"):
            raise UserError(f'{path}: compact is "auto" or "off", not {other!r}.')
        case {"model": other} if not isinstance(other, str):
            raise UserError(f"{path}: model is a name or a path in quotes, not {other!r}.")
        case {"keep_alive": other} if type(other) not in (int, float) or other < 0:
            raise UserError(f"{path}: keep_alive is a number of seconds, not {other!r}.")
        case {"unsandboxed_python": other} if not isinstance(other, bool):
            raise UserError(f"{path}: unsandboxed_python is true or false, not {other!r}.")
        case {"theme": other} if not isinstance(other, str):
            raise UserError(f"{path}: theme is a name in quotes, not {other!r}.")
        case {"animations": other} if not isinstance(other, bool):
            raise UserError(f"{path}: animations is true or false, not {other!r}.")
        case {"responses_days": other} if type(other) not in (int, float) or other <= 0:
            raise UserError(f"{path}: responses_days is a number of days, not {other!r}.")
        case {"responses_most": other} if type(other) is not int or other < 1:
            raise UserError(f"{path}: responses_most is a whole number, not {other!r}.")
    if unknown := given.keys() - {field.name for field in fields(Settings)}:
        raise UserError(f"{path}: there is no setting named {min(unknown)}.")
    return Settings(**{**given, "browser": _browser(path, given.get("browser", {}))})


def _browser(path: Path, given: object) -> BrowserSettings | None:
    if given == {} and "AGENT_SEARXNG" not in os.environ:
        return None  # what reads them comes with all of browsing
    from tools.builtin.browser.settings import BrowserSettings

    try:
        found = BrowserSettings.of(given, os.environ)
    except ValueError as error:
        raise UserError(f"{path}: {error}.") from error
    return None if found == BrowserSettings() else found


def keep(where: Places, setting: Literal["model", "theme"], value: str) -> None:
    """Write a setting into config.toml and leave the rest as it is. Raises UserError."""
    path = where.config / "config.toml"
    line = f"{setting} = {quoted(value)}\n"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        changed, count = re.subn(rf"(?m)^{setting}\s*=.*\n?", lambda _: line, text, count=1)
        private_files.folder(path.parent)
        path.write_text(changed if count else line + text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write {path}: {error}") from error


def quoted(text: str) -> str:
    """Text as a TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
