"""What the store's journal has of a turn that runs in another process."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from agent.store.event_codec import split_line


def noted_text(home: Path, kind: str) -> str:
    """The text that is noted so far; ``kind``: the type of its events, which have deltas."""
    with closing(sqlite3.connect(home / "state" / "store.sqlite")) as store:
        notes = store.execute("select note from journal order by number").fetchall()
    lines = (line for (note,) in notes for line in json.loads(note)["events"])
    events = (json.loads(split_line(line)[1]) for line in lines)
    return "".join(event["delta"] for event in events if event["type"] == kind)
