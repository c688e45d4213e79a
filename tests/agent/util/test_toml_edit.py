"""Changing a value of a TOML file."""

import tomllib

import pytest

from agent.util.toml_edit import set_value

CONFIG = """\
# What I like.
compact = "auto"  # in agent run too

model = "tiny"
[browser]
# A key of the same name, in a later table.
model = "firefox"
"""


def test_set_value_changes_only_that_value() -> None:
    changed = set_value(CONFIG, ["model"], "gpt-oss-20b")
    assert changed == CONFIG.replace('model = "tiny"', 'model = "gpt-oss-20b"')


def test_set_value_new_key_leaves_same_name_in_later_table() -> None:
    text = CONFIG.replace('model = "tiny"\n', "")
    changed = set_value(text, ["model"], "tiny")
    assert tomllib.loads(changed) == {**tomllib.loads(text), "model": "tiny"}
    assert '[browser]\n# A key of the same name, in a later table.\nmodel = "firefox"' in changed
    assert '# What I like.\ncompact = "auto"  # in agent run too\n' in changed


def test_set_value_in_table_leaves_top_level_key() -> None:
    changed = set_value(CONFIG, ["browser", "model"], "lynx")
    assert changed == CONFIG.replace('"firefox"', '"lynx"')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '[m]\npath = "/x"\n'),
        ("a = 1", 'a = 1\n\n[m]\npath = "/x"\n'),
        ("[n]\na = 1\n", '[n]\na = 1\n\n[m]\npath = "/x"\n'),
        ('[m]\nrepo = "r"  # of mine\n', '[m]\nrepo = "r"  # of mine\npath = "/x"\n'),
    ],
)
def test_set_value_adds_missing_table_and_key(text: str, expected: str) -> None:
    assert set_value(text, ["m", "path"], "/x") == expected


def test_set_value_table_beside_its_subtable() -> None:
    changed = set_value("[m.sampling]\ntop_k = 1\n", ["m", "path"], "/x")
    assert tomllib.loads(changed) == {"m": {"path": "/x", "sampling": {"top_k": 1}}}


@pytest.mark.parametrize("value", ['C:\\models\\"a".gguf', "a\nb", "é\u202e", ""])
def test_set_value_escapes_text(value: str) -> None:
    assert tomllib.loads(set_value("", ["model"], value)) == {"model": value}


@pytest.mark.parametrize("text", ["model =", "[m", "m = 1\n"])
def test_set_value_in_invalid_file_raises(text: str) -> None:
    with pytest.raises(ValueError):
        set_value(text, ["m", "path"], "/x")
