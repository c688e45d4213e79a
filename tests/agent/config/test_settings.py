"""config.toml: what it may say, and what is told of what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.settings import Places, Settings, settings
from agent.errors import UserError


def places(folder: Path, text: str | None) -> Places:
    if text is not None:
        (folder / "config.toml").write_text(text)
    return Places(folder, folder, folder)


@pytest.mark.parametrize(
    ("text", "compact"),
    [(None, None), ("", None), ('compact = "auto"', "auto"), ('compact = "off"', "off")],
)
def test_what_it_says(tmp_path: Path, text: str | None, compact: str | None) -> None:
    assert settings(places(tmp_path, text)) == Settings(compact)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("compact = 3", '"auto" or "off", not 3'),
        ('compact = "always"', "not 'always'"),
        ("compakt = 1", "no setting named compakt"),
        ("compact =", "Cannot read"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        settings(places(tmp_path, text))
