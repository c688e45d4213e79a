"""Reads and changes config.toml, the settings that a person writes down once."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agent.config.field_spec import FieldSpec, find_mismatch, is_flag, is_number, is_text
from agent.config.paths import Paths
from agent.errors import UserError
from tools import private_files

if TYPE_CHECKING:
    from tools.builtin.browser.settings import BrowserSettings

SETTINGS = {
    "compact": FieldSpec('"auto" or "off"', lambda value: value in ("auto", "off")),
    "model": FieldSpec("a name or a path in quotes", is_text),
    "keep_alive": FieldSpec("a number of seconds", lambda v: is_number(v) and not v < 0),
    "unsandboxed_python": FieldSpec("true or false", is_flag),
    "theme": FieldSpec("a name in quotes", is_text),
    "animations": FieldSpec("true or false", is_flag),
    "responses_days": FieldSpec("a number of days", lambda v: is_number(v) and not v <= 0),
    "responses_most": FieldSpec("a whole number", lambda v: type(v) is int and v >= 1),
}
"""What each setting may be; the table ``browser`` has a reader of its own."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of config.toml; None: it does not say."""

    compact: Literal["auto", "off"] | None = None
    """Whether a full context is compacted (`agent/conversation/compaction.py`); unset: in the
    app alone."""
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
    """Days for which the server's responses are stored; unset: 30."""
    responses_most: int | None = None
    """How many of them are stored; unset: 10000."""


def load_settings(paths: Paths) -> Settings:
    """Read config.toml; without one all settings are unset.

    Raises UserError, which names the file and what is wrong with it.
    """
    path = _file(paths)
    values: dict[str, Any]
    try:
        import tomllib  # not read where there is no need: the app starts with it

        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        values = {}
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path}: {error}") from error
    if (name := find_mismatch(values, SETTINGS)) is not None:
        raise UserError(f"{path}: {name} is {SETTINGS[name].expected}, not {values[name]!r}.")
    if unknown := values.keys() - {field.name for field in fields(Settings)}:
        raise UserError(f"{path}: there is no setting named {min(unknown)}.")
    return Settings(**{**values, "browser": _browser(path, values.get("browser", {}))})


def _file(paths: Paths) -> Path:
    return paths.config / "config.toml"


def _browser(path: Path, table: object) -> BrowserSettings | None:
    if table == {} and "AGENT_SEARXNG" not in os.environ:
        return None  # the module that reads them imports all of browsing
    from tools.builtin.browser.settings import BrowserSettings

    try:
        browser = BrowserSettings.parse(table, os.environ)
    except ValueError as error:
        raise UserError(f"{path}: {error}.") from error
    return None if browser == BrowserSettings() else browser


def save_setting(paths: Paths, name: Literal["model", "theme"], value: str) -> None:
    """Write a setting into config.toml and leave the rest as it is. Raises UserError."""
    from agent.util.toml_edit import set_value  # most runs change nothing

    path = _file(paths)
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        changed = set_value(text, [name], value)
        private_files.make_folder(path.parent)
        path.write_text(changed, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot write {path}: {error}") from error
