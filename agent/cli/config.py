"""`agent config …`: shows and changes config.toml. The docstrings are the help texts."""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from agent.cli.completion import complete_setting
from agent.cli.options import flag
from agent.config.paths import Paths, user_paths
from agent.config.settings import (
    DEFAULTS,
    FORMER_NAMES,
    SETTINGS,
    Settings,
    load_settings,
    save_setting,
    settings_file,
)
from agent.errors import UserError, user_errors
from agent.models.resolve import default_name, lasting_name
from agent.util import private_files
from agent.util.programs import find_program, require_program
from agent.util.sanitize import echo, sanitize

app = typer.Typer(rich_markup_mode=None)
FALLBACK_EDITORS = ("nano", "vi")


@app.command(epilog="Example: agent config show --json | jq '.effort'")
def show(as_json: bool = flag("--json", help="Print a JSON object.")) -> None:
    """Show each setting, its value, its default and where the value comes from."""
    paths = user_paths()
    settings = load_settings(paths)
    written = _written(settings_file(paths))
    _warn_wrong_keys(settings)
    rows = []
    for name, default in DEFAULTS.items():
        source = "config.toml" if name in written else "default"
        if name == "browser.searxng" and os.environ.get("AGENT_SEARXNG"):
            source = "AGENT_SEARXNG"
        value = None if source == "default" else _value(settings, name)
        if name.startswith("keys.") and value is None:
            source = "default"
        if name == "model" and value is None:
            value = _default_model(paths)
        rows.append((name, value, default, source))
    if as_json:
        table = {n: {"value": v, "default": d, "source": s} for n, v, d, s in rows}
        echo(json.dumps(table, ensure_ascii=False, indent=2))
        return
    lines = [(n, d if v is None else sanitize(_text(v)), d, s) for n, v, d, s in rows]
    echo(_format_table([line for line in lines if not line[0].startswith("keys.")]))
    keys = [line for line in lines if line[0].startswith("keys.")]
    # A default is not said twice: some actions have many keys.
    keys = [(n, v, "" if s == "default" else d, s) for n, v, d, s in keys]
    echo(f"\n{_format_table(keys)}")


@app.command(
    "set",
    epilog="Examples: agent config set effort high  ·  agent config set top_k 40",
    context_settings={"ignore_unknown_options": True},  # -1 is a value
)
def set_(
    name: str = typer.Argument(
        metavar="KEY", help="A name from agent config show.", autocompletion=complete_setting
    ),
    value: str = typer.Argument(metavar="VALUE", help="Quotes are not needed."),
) -> None:
    """Change one setting; the rest of the file, comments too, stays as it is."""
    name = FORMER_NAMES.get(name, name)
    if name not in DEFAULTS:
        raise UserError(f"There is no setting {name}; agent config show lists them.")
    paths = user_paths()
    spec = SETTINGS[name].values if name in SETTINGS else None
    read = _read_value(value)
    if spec is not None and not spec.accepts(read):
        read = value  # 12b is a name, and so is 3
    if spec is not None and not spec.accepts(read):
        raise UserError(f"{name} must be {spec.expected.replace(chr(34), '')}, not {value!r}.")
    if name == "model":
        read = lasting_name(str(read), paths)
    if name == "theme":
        _require_theme(str(read))
    if name.startswith("keys.") and not isinstance(read, str):
        read = value  # 3 is not a number here
    save_setting(paths, name, read)


@app.command(epilog="Example: EDITOR=nano agent config edit")
def edit() -> None:
    """Open config.toml in $VISUAL or $EDITOR, and check it afterwards."""
    path = settings_file(user_paths())
    configured = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    fallback = next((editor for editor in FALLBACK_EDITORS if find_program(editor)), "")
    try:
        command = shlex.split(configured or fallback)
    except ValueError:
        command = [configured]
    if not command:
        raise UserError(f"No editor found: set EDITOR, or edit {path} yourself.")
    private_files.make_folder(path.parent)
    with user_errors(OSError, failure=f"Cannot run the editor {command[0]}"):
        code = subprocess.run([require_program(command[0]), *command[1:], str(path)]).returncode
    if code:
        print(f"agent: {command[0]} ended with exit code {code}.", file=sys.stderr)
    _warn_wrong_keys(load_settings(user_paths()))
    raise typer.Exit(1 if code else 0)


@app.command(epilog="Example: cat $(agent config path)")
def path() -> None:
    """Print the path of config.toml, whether it exists or not."""
    echo(str(settings_file(user_paths())))


def _format_table(rows: Sequence[tuple[str, str, str, str]]) -> str:
    rows = [("SETTING", "VALUE", "DEFAULT", "FROM"), *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    )


def _warn_wrong_keys(settings: Settings) -> None:
    for problem in settings.keys.problems.values():
        echo(f"agent: {problem}", file=sys.stderr)


def _written(file: Path) -> set[str]:
    """The settings that the file has, those of tables as TABLE.KEY, by their names of now."""
    names: set[str] = set()
    if file.exists():
        for key, value in tomllib.loads(file.read_text(encoding="utf-8-sig")).items():
            names |= {f"{key}.{inner}" for inner in value} if isinstance(value, dict) else {key}
    return {FORMER_NAMES.get(name, name) for name in names}


def _value(settings: Settings, name: str) -> Any:
    if name.startswith("keys."):
        return settings.keys.chosen.get(name.removeprefix("keys."))
    value: Any = settings
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def _read_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"] if "\n" not in text else text
    except ValueError:
        return text


def _text(value: Any) -> str:
    """A value as it is typed after agent config set."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _default_model(paths: Paths) -> str | None:
    from agent.engine.protocol import EngineError

    try:
        return default_name(paths)
    except EngineError:
        return None


def _require_theme(name: str) -> None:
    from textual.theme import BUILTIN_THEMES

    from tui.theme import THEMES

    names = [*(theme.name for theme in THEMES), *BUILTIN_THEMES]
    if name not in names:
        raise UserError(f"There is no theme {name!r}; known: {', '.join(names)}.")
