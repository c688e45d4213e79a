"""`agent sessions`: what a person does with the conversations that are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.program import Agent

pytestmark = pytest.mark.slow

PYTHON = "<|channel|>analysis to=python code<|message|>print(1+1)<|call|>"
FINAL = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>It is <b>2</b>.<|return|>"  # fmt: skip # noqa: E501
TWO = "First line\nand more"


@pytest.fixture
def kept(agent: Agent, script: Callable[..., str]) -> dict[str, Any]:
    """Two turns in one conversation; as the list has it."""
    engine = ("--engine", script(PYTHON, FINAL, FINAL))
    assert agent("run", TWO, *engine).code == 0
    assert agent("run", "--continue", "again", *engine).code == 0
    (one,) = json.loads(agent("sessions", "list", "--json").out)
    return dict(one)


def test_list_and_show(agent: Agent, kept: dict[str, Any]) -> None:
    assert (kept["title"], kept["turns"], kept["model"]) == ("First line", 2, "tiny")
    short = kept["id"].removeprefix("conv_")[:8]
    listed = agent("sessions", "list")
    assert short in listed.out and "First line" in listed.out
    shown = agent("sessions", "show", short)
    assert all(text in shown.out for text in (kept["id"], TWO, "print(1+1)", "It is <b>2</b>."))
    assert agent("sessions", "show", kept["id"]).out == shown.out
    missing = agent("sessions", "show", "nothing")
    assert missing.code == 2 and "no conversation with the id nothing" in missing.err


def test_export(agent: Agent, kept: dict[str, Any], tmp_path: Path) -> None:
    name = kept["id"]
    exported = json.loads(agent("sessions", "export", name, "--format", "json").out)
    assert [turn["entry"] for turn in exported["conversation"]] == [0, 4]
    assert exported["conversation"][0]["response"]["status"] == "completed"
    lines = agent("sessions", "export", name, "--format", "tokens").out.splitlines()
    roles = [json.loads(line)["role"] for line in lines]
    assert roles == ["user", "assistant", "result", "assistant"] * 2
    page = tmp_path / "page.html"
    assert agent("sessions", "export", name, "--format", "html", "-o", str(page)).code == 0
    assert "It is &lt;b&gt;2&lt;/b&gt;." in page.read_text() and "<b>" not in page.read_text()
    refused = agent("sessions", "export", name, "-o", str(tmp_path / "no" / "file"))
    assert refused.code == 2 and "Cannot write" in refused.err


def test_fork_then_go_on(agent: Agent, kept: dict[str, Any], script: Callable[..., str]) -> None:
    forked = agent("sessions", "fork", kept["id"], "--before", "2").out.strip()
    assert agent("run", "--resume", forked, "otherwise", "--engine", script(FINAL)).code == 0
    branch, first = json.loads(agent("sessions", "list", "--json").out)
    assert (branch["id"], branch["branch_of"], branch["turns"]) == (forked, kept["id"], 2)
    assert first["turns"] == 2
    shown = agent("sessions", "show", forked).out
    assert TWO in shown and "otherwise" in shown and "again" not in shown
    assert agent("sessions", "fork", kept["id"], "--before", "3").code == 2


def test_delete(agent: Agent, home: Path, kept: dict[str, Any]) -> None:
    forked = agent("sessions", "fork", kept["id"]).out.strip()
    asked = agent("sessions", "delete", kept["id"], stdin="")
    assert asked.code == 2 and "--yes" in asked.err
    pages = home / "cache" / "pages" / kept["id"]
    pages.mkdir(parents=True)
    assert agent("sessions", "delete", kept["id"], "--yes").code == 0
    assert not pages.exists(), "what the hands kept goes too"
    (left,) = json.loads(agent("sessions", "list", "--json").out)
    assert left["id"] == forked and left["branch_of"] is None and left["turns"] == 2
    assert agent("sessions", "delete", forked, "-y").code == 0
    empty = agent("sessions", "list")
    assert empty.code == 0 and "No conversation is kept yet" in empty.err


def test_a_store_that_cannot_be_used(agent: Agent, home: Path) -> None:
    (home / "state").mkdir()
    (home / "state" / "store.sqlite").write_text("no database at all, but a letter" * 50)
    broken = agent("sessions", "list")
    assert broken.code == 2 and "cannot be used" in broken.err
