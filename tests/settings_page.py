"""Writes the tables of docs/configuration.md, made of the settings' own texts; ``make man`` runs it."""

import re
from collections.abc import Sequence
from pathlib import Path

from agent.config.keys import ACTIONS, key_label
from agent.config.settings import SETTINGS

PAGE = Path("docs/configuration.md")
"""Below the folder of the repository, in which ``make`` runs."""
_PART = re.compile(r"<!-- (settings|keys) -->\n.*?<!-- end -->", re.DOTALL)


def fill_page(page: str) -> str:
    """The page with the tables between its marks made again."""
    tables = {"settings": settings_table(), "keys": keys_table()}
    return _PART.sub(lambda match: f"<!-- {match[1]} -->\n\n{tables[match[1]]}\n<!-- end -->", page)


def settings_table() -> str:
    """All settings but the keys, in Markdown."""
    rows = [
        (f"`{name}`", setting.values.expected, *setting[1:]) for name, setting in SETTINGS.items()
    ]
    return _table(("setting", "values", "default", "what it does", "also"), rows)


def keys_table() -> str:
    """The actions that can have other keys, in Markdown."""
    rows = [
        (f"`{name}`", ", ".join(map(key_label, action.keys.split(","))), action.meaning)
        for name, action in ACTIONS.items()
    ]
    return _table(("action", "keys by default", "what it does"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text("utf-8")), "utf-8")
