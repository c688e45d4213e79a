"""Messages as models of many families write them, also in sloppy ways: one a line of the table."""

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.formats.tool_arguments import repair_arguments
from tests.support.family_parsing import TOOL_KINDS, Reading, harness, mismatch
from tests.support.program import ROOT
from tests.support.template_families import FAMILIES, FOLDER, TOOL_NAMES

TABLE = ROOT / "tests" / "data" / "family_messages.jsonl"
MESSAGES = [json.loads(line) for line in TABLE.read_text().splitlines()]


def wrong(message: Mapping[str, Any], reading: Reading) -> str | None:
    """What is wrong with the segments of a message of the table; None: nothing.

    In ``sloppy`` messages markup may be repaired, and JSON may be left to be repaired later.
    """
    if message.get("sloppy"):
        reading.repairs.clear()
        for segment in reading.segments:
            if segment.kind in TOOL_KINDS and segment.complete:
                segment.text = repair_arguments(segment.text, True).json
    ends = FAMILIES[message["template"]].ends
    return mismatch(message["segments"], reading, typed=True, ends=ends)


def test_table_has_many_families() -> None:
    assert len(MESSAGES) >= 80 and len({message["template"] for message in MESSAGES}) >= 25


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: f"{m['template']}: {m['note']}")
def test_written_message_is_read(message: Mapping[str, Any]) -> None:
    parser = harness(message["template"])
    reading = parser.read(message["text"], schemas=True)
    assert not wrong(message, reading), reading
    parser.check_splits(message["text"], random.Random(message["note"]))


@pytest.mark.slow
@pytest.mark.parametrize("message", MESSAGES[::12], ids=lambda m: f"{m['template']}: {m['note']}")
def test_command_reads_message(message: Mapping[str, Any]) -> None:
    """`agent parse` gives the same segments, without schemas."""
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("agent"), "parse", "--text"),
            *("--chat-template", FOLDER / f"{message['template']}.jinja"),
            *("--tools", ",".join(TOOL_NAMES)),
        ],
        input=message["text"],
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    [line] = done.stdout.splitlines()
    read = [s for s in json.loads(line)["segments"] if s["kind"] != "stop"]
    direct = harness(message["template"]).read(message["text"]).segments
    keys = ("kind", "text", "complete")
    assert [[s[key] for key in keys] for s in read] == [
        [segment.kind, segment.text, segment.complete] for segment in direct
    ]
    names = [(s["recipient"] or s["raw_recipient"] or "").removeprefix("functions.") for s in read]
    assert names == [segment.name or "" for segment in direct]
