"""The search for tools finds the right one for requests in a person's words."""

import re
from pathlib import Path

import pytest

from tools.tool_index import ToolIndex
from tools.types import Tool

DATA = Path(__file__).parents[1] / "data"
LINE = re.compile(r"(?P<name>[\w-]+): (?P<text>.*?)(?: \((?P<parameters>[\w, ]+)\))?\Z")


def known_tools() -> list[Tool]:
    """The tools of well-known servers, as their documentation describes them."""
    tools, server = [], ""
    for line in (DATA / "tool_search_tools.txt").read_text().splitlines():
        if (match := LINE.match(line)) is None:
            server = line
            continue
        names = (match["parameters"] or "").split(", ")
        schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
        tools.append(Tool(server, match["name"], match["text"], schema))
    return tools


def requests() -> list[tuple[str, str]]:
    lines = (DATA / "tool_search_requests.txt").read_text().splitlines()
    return [(name, text) for name, _, text in (line.partition(": ") for line in lines)]


def test_right_tool_is_among_the_first_five() -> None:
    tools = known_tools()
    index, missed = ToolIndex(tools), []
    assert len(tools) > 180 and len(requests()) == 100
    for wanted, text in requests():
        matches = [f"{tools[at].server}.{tools[at].name}" for at in index.search(text, 5)]
        if wanted not in matches:
            missed.append((wanted, text, matches))
    assert len(missed) <= 5, missed


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", []),
        ("the of and", []),
        ("zzz", []),
        ("getUserProfile", ["get_user_profile"]),
        ("user profiles", ["get_user_profile"]),
        ('"user" OR name:x NEAR(*', ["get_user_profile"]),
        ("repository", ["forkRepo"]),
        ("文件列表", ["列出文件"]),
        ("x " * 10_000, []),
    ],
)
def test_words_are_compared_without_spelling(query: str, expected: list[str]) -> None:
    tools = [
        Tool("", "get_user_profile", "Get it.", {}),
        Tool("", "forkRepo", "Copy \ud800 it.", {"properties": "odd"}),
        Tool("", "列出文件", "", {"properties": {"a": True}}),
    ]
    assert [tools[at].name for at in ToolIndex(tools).search(query, 5)] == expected
    assert ToolIndex([]).search(query, 5) == []
