"""Prompts that were sent, kept for the next session."""

import json
from pathlib import Path

import pytest

from tui.state.prompt_history import MAX_PROMPTS, PromptHistory


def test_prompt_history_next_session_has_sent_prompts(tmp_path: Path) -> None:
    file = tmp_path / "state" / "prompts.jsonl"
    first = PromptHistory(file)
    for text in ("one", "two\nlines", "two\nlines"):
        first.add(text)
    second = PromptHistory(file)
    assert second.go(-1, "draft") == "two\nlines"
    assert second.go(-1, "two\nlines") == "one"
    assert second.go(-1, "one") is None
    assert second.go(1, "one") == "two\nlines"
    assert second.go(1, "two\nlines") == "draft"
    assert second.go(1, "draft") is None


def test_prompt_history_edits_stay_until_something_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    history = PromptHistory(file)
    history.add("one")
    history.add("two")
    assert history.go(-1, "first draft") == "two"
    assert history.go(-1, "second draft") == "one"
    assert history.go(1, "one, edited") == "second draft"
    assert history.go(1, "second draft") == "first draft"
    assert history.go(1, "first draft") is None
    assert history.go(-1, "first draft") == "second draft"
    history.add("second draft, sent")
    texts = ["second draft, sent", "first draft", "one, edited", "two", "one"]
    text_now = ""
    for text in texts:
        text_now = history.go(-1, text_now) or ""
        assert text_now == text
    sent = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    assert sent == ["one", "two", "second draft, sent"]


@pytest.mark.parametrize("exists", [False, True])
def test_prompt_history_file_is_owner_only(tmp_path: Path, exists: bool) -> None:
    file = tmp_path / "prompts.jsonl"
    if exists:
        file.touch(0o644)
    PromptHistory(file).add("a secret")
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text()) == {"text": "a secret", "folder": ""}


def test_prompt_history_damaged_file_is_read_and_trimmed(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(f'"{n}"\n' for n in range(3 * MAX_PROMPTS)) + '"cut o')
    history = PromptHistory(file)
    assert history.go(-1, "") == str(3 * MAX_PROMPTS - 1)
    assert len(file.read_text().splitlines()) < MAX_PROMPTS + 1


def test_prompt_history_is_of_the_folder_or_its_repository(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('"older"\n')
    inside = tmp_path / "repository" / "src"
    inside.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    (tmp_path / "other").mkdir()
    for root, text in ((inside, "in src"), (tmp_path / "other", "in other")):
        PromptHistory(file, root).add(text)
    history = PromptHistory(file, tmp_path / "repository")
    assert history.entries == ["older", "in src"]
    history.add("new")
    assert history.entries == ["older", "in src", "new"]
    assert history.everywhere == ["older", "in src", "in other", "new"]
    assert PromptHistory(file, tmp_path / "other").entries == ["older", "in other"]
