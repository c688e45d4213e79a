"""Finds tools by words: SQLite's BM25 over their names, servers, descriptions and parameters."""

import re
import sqlite3
from collections.abc import Sequence

from tools.types import Tool

WEIGHTS = "3.0, 2.0, 1.0, 0.5"
"""The weights of a word in a name, a server's name, a description, a parameter."""
MAX_QUERY_WORDS, MIN_PREFIX_CHARS = 64, 3
_GAPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_SIMILAR_WORDS = (
    "create add make new write insert open/update change edit modify set/delete remove drop forget"
    " clear/list show get read view fetch display retrieve what/search find look lookup query/run"
    " execute start launch call/send post publish write/download fetch get save/navigate go visit"
    " open/folder directory dir/document documentation docs file page/email mail message gmail inbox"
    " emails/web website page site url internet link online/song track music album/picture image photo"
    " screenshot/ticket issue bug task/meeting event appointment calendar/alert warning alarm/rain"
    " snow storm weather forecast/spreadsheet sheet worksheet excel/person people user member"
    " customer/place location near nearby restaurant cafe shop/text content words/high height"
    " elevation altitude/database table sql/log history output/repository repo project"
    "/configuration config settings/authentication auth login/information info details"
)
_SIMILAR = [group.split() for group in _SIMILAR_WORDS.split("/")]


class ToolIndex:
    """An index of tools, which are named by their positions. Used by one thread at a time."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        columns = "name, server, description, parameters, tokenize='porter unicode61'"
        self._database.execute(f"CREATE VIRTUAL TABLE tool USING fts5({columns})")
        self._database.executemany("INSERT INTO tool VALUES (?, ?, ?, ?)", map(_texts, tools))

    def search(self, query: str, limit: int) -> list[int]:
        """Return the positions of at most ``limit`` tools with a similar word, the best first."""
        terms = []
        for word in dict.fromkeys(_words(query).lower().split()[:MAX_QUERY_WORDS]):
            prefix = [f'"{word}"*'] if len(word) >= MIN_PREFIX_CHARS else []
            similar = dict.fromkeys(w for group in _SIMILAR if word in group for w in group)
            terms += [f'"{word}"', *prefix, *(f'"{w}"' for w in similar if w != word)]
        order = f"SELECT rowid FROM tool WHERE tool MATCH ? ORDER BY bm25(tool, {WEIGHTS}) LIMIT ?"
        rows = self._database.execute(order, (" OR ".join(terms), limit)) if terms else ()
        return [row - 1 for (row,) in rows]


def _texts(tool: Tool) -> list[str]:
    properties = tool.parameters.get("properties")
    parameters = [
        f"{name} {schema.get('description', '') if isinstance(schema, dict) else ''}"
        for name, schema in (properties.items() if isinstance(properties, dict) else ())
    ]
    return [*map(_words, (tool.name, tool.server, tool.description, " ".join(parameters)))]


def _words(text: str) -> str:
    """Part words by blanks, and what is written without them into pairs of characters."""
    return _CJK.sub(_pairs, _GAPS.sub(" ", text.encode("utf-8", "replace").decode()))


def _pairs(run: re.Match[str]) -> str:
    return " ".join(run[0][at : at + 2] for at in range(len(run[0]) - 1))
