"""config.toml: the settings that it may have, and the sentences about those that it may not."""

import os
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from agent.config.paths import Paths
from agent.config.settings import Settings, load_settings, save_setting
from agent.errors import UserError


def paths_with(folder: Path, text: str | None) -> Paths:
    """Paths whose config.toml has this text; None: there is none."""
    if text is not None:
        (folder / "config.toml").write_text(text)
    return Paths(folder, folder, folder)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (None, Settings()),
        ("", Settings()),
        ('compact = "auto"', Settings(compact="auto")),
        ('compact = "off"', Settings(compact="off")),
        ("animations = true", Settings(animations=True)),
        ("animations = false", Settings(animations=False)),
        ("token_probabilities = true", Settings(token_probabilities=True)),
        ("unsandboxed_python = true", Settings(unsandboxed_python=True)),
        ("unsandboxed_python = false", Settings(unsandboxed_python=False)),
        ("keep_alive = 0.5", Settings(keep_alive=0.5)),
        ("prefix_cache = 2.5", Settings(prefix_cache=2.5)),
        ('theme = "nord"\nmodel = "tiny"', Settings(theme="nord", model="tiny")),
        ('effort = "low"\ntop_k = 4', Settings(effort="low", top_k=4)),
        ("max_reasoning_tokens = 0", Settings(max_reasoning_tokens=0)),
        ("temperature = 0\nmin_p = 0.1", Settings(temperature=0, min_p=0.1)),
        ('view = "conversation"\ntop_p = 1', Settings(view="conversation", top_p=1)),
        ("responses_days = 7\nresponses_max = 9", Settings(responses_days=7, responses_max=9)),
    ],
)
def test_load_settings_reads_values(tmp_path: Path, text: str | None, settings: Settings) -> None:
    assert load_settings(paths_with(tmp_path, text)) == settings


def test_load_settings_defaults_are_safe() -> None:
    settings = Settings()
    assert settings.animations and not settings.unsandboxed_python
    assert not settings.token_probabilities


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compact = 3", '"auto" or "off", not 3'),
        ('compact = "always"', "not 'always'"),
        ("animations = 1", "animations must be true or false, not 1"),
        ('animations = "off"', "animations must be true or false, not 'off'"),
        ("token_probabilities = 1", "token_probabilities must be true or false, not 1"),
        ("unsandboxed_python = 0", "unsandboxed_python must be true or false, not 0"),
        ('unsandboxed_python = "yes"', "unsandboxed_python must be true or false, not 'yes'"),
        ("keep_alive = true", "keep_alive must be a number of seconds, not True"),
        ("keep_alive = -1", "keep_alive must be a number of seconds, not -1"),
        ("prefix_cache = inf", "prefix_cache must be a number of gigabytes, not inf"),
        ("model = 3", "model must be a name or a path in quotes, not 3"),
        ("theme = 3", "theme must be a name in quotes, not 3"),
        ("responses_days = 0", "responses_days must be a number of days, not 0"),
        ("responses_max = 1.5", "responses_max must be a whole number, not 1.5"),
        ("top_p = 1.5", "top_p must be a number from 0 to 1, not 1.5"),
        ('view = "split"', 'view must be "panes" or "conversation", not \'split\''),
        ("compakt = 1", "no setting named compakt"),
        ("compact =", "Cannot read"),
    ],
)
def test_load_settings_wrong_value_raises(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        load_settings(paths_with(tmp_path, text))
    assert str(tmp_path / "config.toml") in str(raised.value)


def test_former_name_of_a_setting_still_counts(tmp_path: Path) -> None:
    assert load_settings(paths_with(tmp_path, "responses_most = 9")).responses_max == 9
    both = paths_with(tmp_path, "responses_most = 9\nresponses_max = 7")
    assert load_settings(both).responses_max == 7
    wrong = paths_with(tmp_path, "responses_most = 1.5")
    with pytest.raises(UserError, match="responses_most must be a whole number"):
        load_settings(wrong)


@pytest.mark.parametrize(
    ("make", "reason"), [(Path.mkdir, "Is a directory"), (os.mkfifo, "it is a pipe")]
)
def test_settings_unreadable_file_is_named_once(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    make(tmp_path / "config.toml")
    paths = paths_with(tmp_path, None)
    for use in (load_settings, partial(save_setting, name="theme", value="light")):
        with pytest.raises(UserError, match=f"config.toml: {reason}$"):
            use(paths)


def test_save_setting_leaves_the_rest(tmp_path: Path) -> None:
    text = '# mine\nmodel = "a"  # since May\n\n[browser]\nallow_private = []\n'
    paths = paths_with(tmp_path, text)
    save_setting(paths, "model", "b")
    assert (tmp_path / "config.toml").read_text() == text.replace('"a"', '"b"')


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_save_setting_keeps_line_ends_and_byte_order_mark(tmp_path: Path, mark: str) -> None:
    paths = paths_with(tmp_path, "")
    text = f'{mark}# mine\r\ntheme = "nord"\r\n'
    (tmp_path / "config.toml").write_bytes(text.encode())
    save_setting(paths, "top_k", 7)
    save_setting(paths, "browser.allow_private", [])
    changed = (tmp_path / "config.toml").read_bytes().decode()
    assert changed == text + "top_k = 7\r\n\r\n[browser]\r\nallow_private = []\r\n"
    assert load_settings(paths).theme == "nord" and load_settings(paths).top_k == 7


def test_save_setting_of_many_at_once_loses_none(tmp_path: Path) -> None:
    paths = paths_with(tmp_path, "# mine\n")
    settings: list[tuple[str, object]] = [
        ("effort", "high"), ("top_k", 4), ("min_p", 0.1), ("theme", "x"), ("titles", False),
        ("animations", False), ("keep_alive", 3), ("responses_max", 9), ("keys.view", "f9"),
        ("browser.allow_private", []),
    ]  # fmt: skip
    with ThreadPoolExecutor(len(settings)) as pool:
        list(pool.map(lambda setting: save_setting(paths, *setting), settings))
    written = tomllib.loads((tmp_path / "config.toml").read_text())
    tables = [written.pop("keys"), written.pop("browser")]
    assert tables == [{"view": "f9"}, {"allow_private": []}]
    assert written == {name: value for name, value in settings if "." not in name}


def test_save_setting_makes_the_file(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "config", tmp_path, tmp_path)
    save_setting(paths, "theme", "nord")
    assert load_settings(paths).theme == "nord"


def test_settings_nested_too_deeply_raise(tmp_path: Path) -> None:
    paths = paths_with(tmp_path, "a = " + "[" * 3000)
    with pytest.raises(UserError, match="Cannot read"):
        load_settings(paths)
    with pytest.raises(UserError, match="Cannot write"):
        save_setting(paths, "theme", "nord")


def test_save_setting_in_unreadable_file_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Cannot write"):
        save_setting(paths_with(tmp_path, "theme = "), "theme", "nord")
    assert (tmp_path / "config.toml").read_text() == "theme = "
