"""Answers small questions about the store in milliseconds, read only and without recovery: shell
completion and the app's last line. Where that fails there is no answer."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

SHORT_ID_LENGTH = 8
"""Characters of an id as lists show it, without the prefix ``conv_``."""
MAX_TITLES = 100


def short_id(conversation_id: str) -> str:
    """The id as lists show it; commands take it too."""
    return conversation_id.removeprefix("conv_")[:SHORT_ID_LENGTH]


def recent_titles(store: Path) -> list[tuple[str, str]]:
    """Ids and titles of a person's conversations, the latest first."""
    return _query(
        store,
        "select id, title from conversations where not hidden and source = 'local'"
        " order by updated desc limit ?",
        MAX_TITLES,
    )


def conversation_of_process(store: Path, pid: int, since: float) -> str | None:
    """The conversation of the process's latest turn; ``since``: Unix time when it began."""
    rows = _query(
        store,
        "select c.id from turns t join conversations c on c.id = t.conversation"
        " where t.pid = ? and t.created >= ? and t.served is null and not c.hidden"
        " order by t.created desc limit 1",
        pid,
        since,
    )
    return str(rows[0][0]) if rows else None


def _query(store: Path, query: str, *values: float) -> list[Any]:
    if not store.is_file():
        return []
    with suppress(sqlite3.Error):
        uri = f"{store.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as db:
            return db.execute(query, values).fetchall()
    return []
