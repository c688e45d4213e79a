"""Names the app's actions that have keys, and reads the table ``keys`` of config.toml. A leaf without
Textual, for `agent config` and the app's start."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from agent.errors import AgentError


class KeyAction(NamedTuple):
    """An action that a person can give other keys."""

    keys: str
    """The keys by default, with commas between them."""
    meaning: str


ACTIONS = {
    "help": KeyAction("f1", "show keys and commands"),
    "view": KeyAction("f2", "switch between live panes and conversation"),
    "next_tab": KeyAction("f3,ctrl+pagedown", "show the next tab (live API clients)"),
    "previous_tab": KeyAction("shift+f3,ctrl+pageup", "show the previous tab"),
    "theme": KeyAction("f4", "choose the next theme"),
    "sessions": KeyAction("f5", "list the conversations"),
    "models": KeyAction("f6", "list the models"),
    "mcp": KeyAction("f7", "list MCP servers and tools"),
    "raw": KeyAction("f8", "show the tokens that the model reads and writes"),
    "redraw": KeyAction("ctrl+l", "redraw the screen"),
    "suspend": KeyAction("ctrl+z", "suspend the app; fg in the shell returns"),
    "mode": KeyAction("shift+tab", "the next mode: ask, plan, accept edits"),
    "undo": KeyAction("ctrl+underscore,alt+z", "undo in the prompt"),
    "steer": KeyAction("ctrl+s", "send to the running turn"),
    "answer": KeyAction("ctrl+n", "end the reasoning and have the answer now"),
    "newline": KeyAction("ctrl+j,shift+enter,alt+enter", "begin a new line in the prompt"),
    "editor": KeyAction("ctrl+g", "write the prompt in $EDITOR"),
    "select": KeyAction("ctrl+up,alt+up", "select a message"),
    "search": KeyAction("ctrl+f", "search the conversation"),
    "fold": KeyAction("ctrl+o", "open or fold reasoning and long results"),
    "history": KeyAction("ctrl+r", "search your earlier prompts"),
    "copy": KeyAction("ctrl+y", "copy the last answer"),
    "copy_code": KeyAction("alt+y", "copy its last code block"),
    "palette": KeyAction("ctrl+p", "open the command palette"),
    "close_tab": KeyAction("ctrl+w", "close the tab, if the prompt is empty"),
    "quit": KeyAction("ctrl+d", "quit, if pressed twice in an empty prompt"),
    "scroll_up": KeyAction("pageup", "scroll up by a page"),
    "scroll_down": KeyAction("pagedown", "scroll down by a page"),
    "scroll_top": KeyAction("ctrl+home", "scroll to the beginning"),
    "scroll_bottom": KeyAction("ctrl+end", "scroll to the end"),
}
"""By the names that the table ``keys`` has."""
FIXED = {"ctrl+c": "stops and quits", "ctrl+q": "quits"}
"""Keys that no action can have, or a person could not leave; `parse_key` excludes others."""
SAME_AS = {"ctrl+i": "Tab", "ctrl+m": "Enter", "ctrl+[": "Esc"}
"""Keys that a terminal does not distinguish from others."""
_ALIASES = {
    "control": "ctrl", "option": "alt", "meta": "alt", "pgup": "pageup", "pgdn": "pagedown",
    "pgdown": "pagedown", "return": "enter", "esc": "escape", "del": "delete", "_": "underscore",
}  # fmt: skip
_LABELS = {"pageup": "PgUp", "pagedown": "PgDn", "up": "↑", "down": "↓", "left": "←", "right": "→"}
_FUNCTION_KEY = re.compile(r"f([1-9]|1[0-9]|2[0-4])")
_SHIFTED = ("shift+enter", "shift+tab")
_NAMED = re.compile(
    r"[a-z0-9]|up|down|left|right|home|end|pageup|pagedown|insert|delete|enter|space|backspace|underscore"
)


class KeyNameError(AgentError):
    """A text names no key that an action can have; the message is what is wrong with it."""


class KeyBindings(NamedTuple):
    """The keys of the app's actions."""

    chosen: Mapping[str, str] = {}
    """By action, the keys that config.toml names."""
    problems: Mapping[str, str] = {}
    """By the names in the file: a sentence on each that cannot be used, whose default stays."""

    def keys(self, action: str) -> list[str]:
        return (self.chosen.get(action) or ACTIONS[action].keys).split(",")

    def label(self, action: str) -> str:
        return key_label(self.keys(action)[0])


def parse_keys(text: object) -> str:
    """Keys as Textual names them, with commas between them. Raises KeyNameError."""
    if not isinstance(text, str):
        raise KeyNameError(f'expected a key in quotes, such as "f9" or "ctrl+g", not {text!r}')
    return ",".join(map(parse_key, text.split(",")))


def parse_key(text: str) -> str:
    """One key as Textual names it: ``Ctrl-PgUp`` is ``ctrl+pageup``. Raises KeyNameError."""
    words = re.sub(r"(?<=\w)-(?=.)", "+", text.strip().lower()).split("+")
    *modifiers, key = (_ALIASES.get(word, word) for word in words)
    name = "+".join([*sorted(set(modifiers)), key])
    if name in FIXED:
        raise KeyNameError(f"{key_label(name)} always {FIXED[name]}")
    if name in SAME_AS:
        raise KeyNameError(f"terminals send {key_label(name)} as {SAME_AS[name]}")
    function_key = _FUNCTION_KEY.fullmatch(key)
    known = function_key or _NAMED.fullmatch(key) or name in _SHIFTED
    if not known or not {"ctrl", "alt", "shift"}.issuperset(modifiers):
        raise KeyNameError(f'{text.strip()!r} is not a key, such as "f9", "ctrl+g" or "alt+up"')
    writes = not function_key and key not in ("pageup", "pagedown") and name not in _SHIFTED
    if writes and not {"ctrl", "alt"}.intersection(modifiers):
        raise KeyNameError(f"{key_label(name)} is for writing: add ctrl or alt")
    return name


def key_label(key: str) -> str:
    """A key as people read it: ``ctrl+pageup`` is ``Ctrl-PgUp``."""
    return "-".join(_LABELS.get(word, word.capitalize()) for word in key.split("+"))


def read_bindings(table: object) -> KeyBindings:
    """Read the table ``keys``. Never fails; of two actions on a key only the default one has it."""
    if not isinstance(table, dict):
        return KeyBindings({}, {"keys": "keys must be a table: [keys]"})
    chosen: dict[str, str] = {}
    problems: dict[str, str] = {}
    for action, text in table.items():
        try:
            if action not in ACTIONS:
                raise KeyNameError("there is no such action; agent config show lists them")
            chosen[action] = parse_keys(text)
        except KeyNameError as error:
            problems[action] = f"keys.{action}: {error}."
    while clash := _find_clash(KeyBindings(chosen)):
        key, actions = clash
        for action in [action for action in actions if chosen.pop(action, None)]:
            problems[action] = (
                f"keys.{action}: {key_label(key)} cannot be both {' and '.join(actions)};"
                " give one of them another key."
            )
    return KeyBindings(chosen, problems)


def _find_clash(bindings: KeyBindings) -> tuple[str, list[str]] | None:
    """A key that two actions have, and these; None: there is none."""
    counts = Counter(key for action in ACTIONS for key in set(bindings.keys(action)))
    key, count = counts.most_common(1)[0]
    return (key, [a for a in ACTIONS if key in bindings.keys(a)]) if count > 1 else None
