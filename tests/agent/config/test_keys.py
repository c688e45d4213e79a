"""The table `keys` of config.toml: which keys an action can have, and the sentences about others."""

from pathlib import Path

import pytest
from textual.keys import Keys

from agent.config.keys import (
    ACTIONS,
    KeyBindings,
    KeyNameError,
    key_label,
    parse_key,
    read_bindings,
)
from agent.config.paths import Paths
from agent.config.settings import load_settings


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("f9", "f9"),
        ("F12", "f12"),
        (" ctrl+g ", "ctrl+g"),
        ("Ctrl-G", "ctrl+g"),
        ("shift+ctrl+f5", "ctrl+shift+f5"),
        ("alt-PgUp", "alt+pageup"),
        ("control+del", "ctrl+delete"),
        ("pagedown", "pagedown"),
        ("Shift-Enter", "shift+enter"),
    ],
)
def test_parse_key_accepts_usual_spellings(text: str, key: str) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ctrl+c", "Ctrl-C always stops and quits"),
        ("Ctrl-Q", "Ctrl-Q always quits"),
        ("ctrl+m", "terminals send Ctrl-M as Enter"),
        ("enter", "Enter is for writing: add ctrl or alt"),
        ("x", "X is for writing"),
        ("shift+a", "Shift-A is for writing"),
        ("f25", "'f25' is not a key"),
        ("hyper+a", "'hyper\\+a' is not a key"),
        ("ctrl+", "'ctrl\\+' is not a key"),
        ("", "'' is not a key"),
    ],
)
def test_parse_key_refuses_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(KeyNameError, match=message):
        parse_key(text)


def test_default_keys_are_keys_of_textual_and_differ() -> None:
    names = {str(key.value) for key in Keys}
    keys = [key for action in ACTIONS for key in KeyBindings().keys(action)]
    assert len(keys) == len(set(keys)) == len({key_label(key) for key in keys})
    assert all(parse_key(key) == key for key in keys)
    assert not [key for key in keys if key not in names and not key.startswith(("alt+", "shift+"))]


@pytest.mark.parametrize(
    ("table", "chosen", "problems"),
    [
        ({"view": "f9", "raw": "f4"}, {"view": "f9"}, {"raw": "F4 cannot be both theme and raw"}),
        (
            {"steer": "f9", "fold": "f9"},
            {},
            dict.fromkeys(("steer", "fold"), "F9 cannot be both steer and fold"),
        ),
        (  # F4 is the theme's again once Ctrl-G, the editor's, is refused
            {"theme": "ctrl+g", "raw": "f4"},
            {},
            {"theme": "Ctrl-G cannot be both theme and editor", "raw": "F4 cannot be both theme"},
        ),
        (["f9"], {}, {"keys": "keys must be a table"}),
        ({"view": 9}, {}, {"view": "expected a key in quotes"}),
    ],
)
def test_read_bindings_names_what_it_refuses(
    table: object, chosen: dict[str, str], problems: dict[str, str]
) -> None:
    bindings = read_bindings(table)
    assert bindings.chosen == chosen and bindings.problems.keys() == problems.keys()
    assert all(text in bindings.problems[action] for action, text in problems.items())


def test_read_bindings_allows_actions_to_swap_keys() -> None:
    bindings = read_bindings({"view": "f4", "theme": "f2"})
    assert (bindings.label("view"), bindings.label("theme"), bindings.problems) == ("F4", "F2", {})


def test_load_settings_wrong_keys_name_the_line_and_stop_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('view = "panes"\n\n[keys]\n# mine\nview = "x"\nveiw = "f9"\nraw = "f9"\n')
    settings = load_settings(Paths(tmp_path, tmp_path, tmp_path))
    assert settings.view == "panes" and settings.keys.chosen == {"raw": "f9"}
    assert list(settings.keys.problems.values()) == [
        f"{file}, line 5: keys.view: X is for writing: add ctrl or alt.",
        f"{file}, line 6: keys.veiw: there is no such action; agent config show lists them.",
    ]
    file.write_text('theme = "nord"\nkeys.theme = "tab"\n')
    problems = load_settings(Paths(tmp_path, tmp_path, tmp_path)).keys.problems
    assert "line 2" in problems["theme"]
