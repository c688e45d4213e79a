"""Answers to the questions of MCP servers: on a terminal, and by ``--answer``."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.hosts import SERVERS_FOLDER, server_entry
from tests.support.program import RunAgent
from tests.support.terminal import start_program
from tools.sandbox.isolation import best_isolation

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def booking(home: Path) -> None:
    """The person's only server asks questions."""
    (home / "config").mkdir()
    servers = {"mcpServers": {"booking": server_entry("booking")}}
    (home / "config" / "mcp.json").write_text(json.dumps(servers))


@pytest.mark.parametrize(
    ("keys", "action"),
    [("\r", "decline"), ("n\r", "decline"), ("y\r", "accept"), ("\x04", "cancel")],
)
def test_form_without_fields_accepted_by_yes_only(
    home: Path, tmp_path: Path, keys: str, action: str
) -> None:
    with start_program("mcp", "call", "booking", "clear", home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("Delete ALL your bookings?")
        terminal.wait_for("[y/N]")
        assert "it was" not in terminal.text
        terminal.press(keys)
        terminal.wait_for(f"it was {action}")
        assert terminal.wait_exit() == 0


def test_answer_option_accepts_titles_of_choices(agent: RunAgent) -> None:
    answer = {"seats": 3, "meal": "Meat", "extras": ["Wine", "b"]}
    booked = agent("mcp", "call", "booking", "book", "--answer", json.dumps(answer))
    values = {"mail": None, "seats": 3, "meal": "m", "extras": ["w", "b"], "window": True}
    assert (booked.code, json.loads(booked.out)) == (0, values)


def test_answer_option_unknown_choice_names_values_and_titles(agent: RunAgent) -> None:
    for answer, problem in (
        ({"meal": "Fish"}, "Meal: must be one of m (Meat), v (Vegetables)."),
        ({"extras": ["Rice"]}, "Extras: must be some of w (Wine), b (Bread)."),
    ):
        answer = json.dumps({"seats": 3, **answer})
        wrong = agent("mcp", "call", "booking", "book", "--answer", answer)
        assert wrong.code == 1 and f"--answer: {problem}" in wrong.err


@pytest.mark.long
@pytest.mark.skipif(not best_isolation().ok, reason="no sandbox here")
@pytest.mark.parametrize("starts", [True, False])
def test_added_server_moves_to_the_sandbox_where_it_starts(
    home: Path, tmp_path: Path, starts: bool
) -> None:
    command = [sys.executable, "-I", str(SERVERS_FOLDER / "meddler.py")]
    if not starts:  # it needs what the sandbox has not
        outside = tmp_path.parent / f"{tmp_path.name}-outside"
        command = ["sh", "-c", f'touch {outside} && exec "$@"', "sh", *command]
    with start_program("mcp", "add", "new", "--", *command, home=home, cwd=tmp_path) as terminal:
        terminal.wait_for("whether it runs in the sandbox? [y/N]")
        terminal.press("y\r")
        terminal.wait_for("from now on" if starts else "it does not start")
        assert terminal.wait_exit() == 0
    servers = json.loads((home / "config" / "mcp.json").read_text())["mcpServers"]
    assert servers["new"].get("sandbox", False) is starts
