"""Reads and changes config.toml, the settings that a person writes down once."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from agent.config.field_spec import FieldSpec, find_mismatch, is_flag, is_number, is_text
from agent.config.keys import ACTIONS, KeyBindings, read_bindings
from agent.config.paths import Paths
from agent.errors import UserError, describe_cause, user_errors
from agent.util import private_files
from agent.util.user_files import read_text

if TYPE_CHECKING:
    from tools.builtin.browser.settings import BrowserSettings
    from tools.sandbox.isolation import NetworkAccess

DEFAULT_UNDO_MEGABYTES = 256


class Setting(NamedTuple):
    """A setting's values and the texts about it: for the checks, `agent config`, shell completion and
    docs/configuration.md."""

    values: FieldSpec
    default: str
    meaning: str
    elsewhere: str = ""
    """Other ways to set it: options of the command line, variables, commands of the app."""


def _choice(*words: str) -> FieldSpec:
    *most, last = (f'"{word}"' for word in words)
    return FieldSpec(f"{', '.join(most)} or {last}", words.__contains__)


_FLAG = FieldSpec("true or false", is_flag)
_COUNT = FieldSpec("a whole number of at least 0", lambda v: type(v) is int and v >= 0)
_SHARE = FieldSpec("a number from 0 to 1", lambda v: is_number(v) and 0 <= v <= 1)


def _setting(values: FieldSpec, default: str, meaning: str, elsewhere: str = "") -> Any:
    """A field of `Settings`."""
    return field(default=None, metadata={"": Setting(values, default, meaning, elsewhere)})


def _flag(default: bool, meaning: str, elsewhere: str = "") -> Any:
    """A field of `Settings` that is true or false, also where the file does not say."""
    setting = Setting(_FLAG, str(default).lower(), meaning, elsewhere)
    return field(default=default, metadata={"": setting})


def _table(**keys: tuple[str, ...]) -> Any:
    """A field of `Settings` that is a table, which has its own reader, and the texts about its keys."""
    settings = {
        key: Setting(FieldSpec(expected, lambda value: True), *texts)
        for key, (expected, *texts) in keys.items()
    }
    return field(default=None, metadata=settings)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of config.toml, in the order of docs/configuration.md; None: it does not say."""

    model: str | None = _setting(
        FieldSpec("a name or a path in quotes", is_text),
        "installed, else tiny",
        "the model that answers",
        "`--model`, `agent models default`",
    )
    effort: Literal["low", "medium", "high"] | None = _setting(
        _choice("low", "medium", "high"),
        "medium",
        "how much the model reasons",
        "`--effort`, `/effort`",
    )
    max_reasoning_tokens: int | None = _setting(
        _COUNT,
        "no limit",
        "maximum number of reasoning tokens before a call or the answer; 0: none",
        "`--max-reasoning-tokens`",
    )
    temperature: float | None = _setting(
        FieldSpec("a number from 0 to 1,000,000", lambda v: is_number(v) and 0 <= v <= 1e6),
        "the model's",
        "0: always the likeliest token",
        "`--temperature`, `/sampling`",
    )
    top_p: float | None = _setting(
        _SHARE,
        "the model's",
        "nucleus sampling: the smallest set of tokens with this total probability",
        "`--top-p`, `/sampling`",
    )
    top_k: int | None = _setting(
        _COUNT,
        "the model's",
        "sample from the k most likely tokens (0 = all)",
        "`--top-k`, `/sampling`",
    )
    min_p: float | None = _setting(
        _SHARE,
        "the model's",
        "drop tokens below this fraction of the top probability",
        "`--min-p`, `/sampling`",
    )
    mode: Literal["ask", "plan", "accept-edits"] | None = _setting(
        _choice("ask", "plan", "accept-edits"),
        "ask",
        "which calls run without asking in the app and `agent run`",
        "`--mode`, `/mode`, Shift-Tab",
    )
    keep_alive: float | None = _setting(
        FieldSpec("a number of seconds", lambda v: is_number(v) and v >= 0),
        "never",
        "how long the model stays loaded without a turn",
        "`agent serve --keep-alive`, `models.toml`",
    )
    prefix_cache: float | None = _setting(
        FieldSpec("a number of gigabytes", lambda v: is_number(v) and 0 <= v < 1e9),
        "at most 8",
        "gigabytes of prompts on disk as models have read them; unset: 10 % of what is free",
        "`agent models cache`",
    )
    undo_megabytes: float | None = _setting(
        FieldSpec("a number of megabytes", lambda v: is_number(v) and 0 <= v < 1e9),
        str(DEFAULT_UNDO_MEGABYTES),
        "how much is kept of each folder to take changes of files back; 0: nothing",
        "`/undo`",
    )
    compact: Literal["auto", "off"] | None = _setting(
        _choice("auto", "off"),
        "auto in the app",
        "shorten and summarise a full context, or never",
        "`--compact`, `--no-compact`",
    )
    view: Literal["panes", "conversation"] | None = _setting(
        _choice("panes", "conversation"),
        "panes",
        "how the app shows a turn that runs",
        "F2, `/view`",
    )
    probability_scale: Literal["green-red", "blue-orange"] | None = _setting(
        _choice("green-red", "blue-orange"),
        "green-red",
        "the colours of tokens by probability",
        "`/probs`",
    )
    theme: str | None = _setting(
        FieldSpec("a name in quotes", is_text),
        "dark",
        "the app's colours",
        "F4, `/theme`, `NO_COLOR`",
    )
    titles: bool | None = _setting(
        _FLAG, "true", "the model writes a conversation's title while it idles (never `tiny`)"
    )
    animations: bool = _flag(True, "whether anything moves by itself in the app")
    token_probabilities: bool = _flag(
        False, "record in the app how likely each token was, and the ten likeliest others"
    )
    responses_days: float | None = _setting(
        FieldSpec("a number of days", lambda v: is_number(v) and v > 0),
        "30",
        "how long responses of `/v1/responses` are stored",
    )
    responses_max: int | None = _setting(
        FieldSpec("a whole number", lambda v: type(v) is int and 1 <= v < 1 << 63),
        "10000",
        "how many of them are stored",
    )
    tools: Literal["auto", "search", "all"] | None = _setting(
        _choice("auto", "search", "all"),
        "auto",
        "have the model search for the tools of MCP servers, or tell it all of them; auto: search where"
        " they take more than a tenth of the context",
    )
    project_instructions: bool = _flag(
        True, "read `AGENTS.md` files", "`--no-project-instructions`"
    )
    unsandboxed_python: bool = _flag(
        False, "offer python where no sandbox works, and ask before each call"
    )
    browser: BrowserSettings | None = _table(  # noqa: RUF009 - it makes a field
        searxng=(
            "an address in quotes",
            "none",
            "the SearXNG server that searches",
            "`AGENT_SEARXNG`",
        ),
        search=("server.tool in quotes", "none", "the MCP tool that searches"),
        allow_private=("a list of networks", "none", "private networks that the browser may open"),
    )
    network: NetworkAccess | None = _table(  # noqa: RUF009 - it makes a field
        loopback=(
            "true or false",
            "false",
            "whether each command may open ports of its own sandbox",
        ),
        hosts=("a list of hosts", "none", "hosts that commands reach without a question"),
    )
    keys: KeyBindings = field(default_factory=KeyBindings)
    """The keys of the app's actions, and what is wrong with those of the file."""

    @property
    def prefix_cache_bytes(self) -> int | None:
        return None if self.prefix_cache is None else int(self.prefix_cache * 1e9)

    @property
    def undo_bytes(self) -> int:
        megabytes = DEFAULT_UNDO_MEGABYTES if self.undo_megabytes is None else self.undo_megabytes
        return int(megabytes * 1e6)


SETTINGS: dict[str, Setting] = {
    f"{each.name}.{key}" if key else each.name: setting
    for each in fields(Settings)
    for key, setting in each.metadata.items()
}
"""By name; the keys of a table as TABLE.KEY."""
DEFAULTS = {
    **{name: setting.default for name, setting in SETTINGS.items()},
    **{f"keys.{name}": action.keys for name, action in ACTIONS.items()},
}
FORMER_NAMES = {"responses_most": "responses_max"}
"""Former names, which files may still use, and the names of today, which win over them."""


def load_settings(paths: Paths) -> Settings:
    """Read config.toml, if there is one. `Settings.keys` has the wrong keys. Raises UserError."""
    path = settings_file(paths)
    try:
        text = read_text(path, accept_pipe=False)
    except FileNotFoundError:
        text = ""
    except (OSError, ValueError) as error:
        raise UserError(f"Cannot read {path}: {describe_cause(error)}") from error
    settings = parse_settings(path, text)
    problems = {
        action: f"{path}{_line_of_key(text, action)}: {problem}"
        for action, problem in settings.keys.problems.items()
    }
    return replace(settings, keys=settings.keys._replace(problems=problems))


def _line_of_key(text: str, action: str) -> str:
    """Where the table ``keys`` names an action, as ``, line 7``; empty where that is not found."""
    header = re.search(r"^\s*\[\s*keys\s*\]", text, re.MULTILINE)
    prefix = "" if header else r"keys\s*\.\s*"
    entry = re.compile(rf"^\s*{prefix}[\"']?{re.escape(action)}[\"']?\s*=", re.MULTILINE)
    match = entry.search(text, header.end() if header else 0)
    return f", line {text.count(chr(10), 0, match.end()) + 1}" if match else ""


def parse_settings(path: Path, text: str) -> Settings:
    """Read the text of config.toml. Raises UserError, which names ``path`` and what is wrong."""
    values: dict[str, Any] = {}
    try:
        if text:
            import tomllib  # not read where there is no need: the app starts with it

            values = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:  # the latter of brackets by the thousand
        raise UserError(f"Cannot read {path}: {error}") from error
    specs = {name: setting.values for name, setting in SETTINGS.items()}
    specs |= {former: specs[name] for former, name in FORMER_NAMES.items()}
    if (name := find_mismatch(values, specs)) is not None:
        raise UserError(f"{path}: {name} must be {specs[name].expected}, not {values[name]!r}.")
    for former in FORMER_NAMES.keys() & values.keys():
        values.setdefault(FORMER_NAMES[former], values.pop(former))
    if unknown := values.keys() - {field.name for field in fields(Settings)}:
        raise UserError(f"{path}: there is no setting named {min(unknown)}.")
    tables = {
        "browser": _browser(path, values.get("browser", {})),
        "network": _network(path, values.get("network", {})),
        "keys": read_bindings(values.get("keys", {})),
    }
    return Settings(**values | tables)


def settings_file(paths: Paths) -> Path:
    return paths.config / "config.toml"


def _browser(path: Path, table: object) -> BrowserSettings | None:
    if table == {} and "AGENT_SEARXNG" not in os.environ:
        return None  # the module that reads them imports all of browsing
    from tools.builtin.browser.settings import BrowserSettings

    with user_errors(ValueError, failure=str(path)):
        browser = BrowserSettings.parse(table, os.environ)
    return None if browser == BrowserSettings() else browser


def _network(path: Path, table: object) -> NetworkAccess | None:
    if table == {}:
        return None
    from tools.networks import HostError, HostRule
    from tools.sandbox.isolation import NetworkAccess

    if not isinstance(table, dict) or (unknown := table.keys() - {"loopback", "hosts"}):
        problem = (
            f"has no setting named {min(unknown)}" if isinstance(table, dict) else "must be a table"
        )
        raise UserError(f"{path}: network {problem}.")
    loopback, hosts = table.get("loopback", False), table.get("hosts", [])
    if not is_flag(loopback):
        raise UserError(f"{path}: network.loopback must be true or false, not {loopback!r}.")
    if not isinstance(hosts, list) or not all(map(is_text, hosts)):
        raise UserError(f'{path}: network.hosts must be a list of hosts, as in ["wheels.example"].')
    with user_errors(HostError, failure=f"{path}: network.hosts"):
        return NetworkAccess(loopback, tuple(str(HostRule.parse(host)) for host in hosts))


def save_setting(paths: Paths, name: str, value: object) -> None:
    """Write ``name`` (``KEY``, ``browser.KEY``, ``network.KEY`` …) into config.toml. UserError."""
    from agent.util.toml_edit import set_value  # most runs change nothing

    path = settings_file(paths)

    def change(text: str) -> str:
        changed = set_value(text, name.split("."), value)
        table, _, action = name.rpartition(".")
        settings = parse_settings(path, changed)
        if table == "keys" and (problem := settings.keys.problems.get(action)):
            raise UserError(problem)
        return changed

    private_files.update_text(path, change)
