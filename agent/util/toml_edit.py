"""Changes one value in the text of a TOML file; comments, order and spacing of the rest survive."""

import re
import tomllib
from collections.abc import MutableMapping, Sequence
from typing import Any

BYTE_ORDER_MARK = "\ufeff"
"""Some editors, of Windows above all, begin a file with it."""
_LINE_FEED = re.compile(r"(?<!\r)\n")


def set_value(text: str, keys: Sequence[str], value: object) -> str:
    """Return ``text`` with the value at the path ``keys`` set; missing tables are added. A byte order
    mark stays, and new lines end as the others do. Raises ValueError where ``text`` is not TOML,
    or where a key on the path holds no table."""
    # Imported here: it takes 30 ms, and few runs change a file.
    import tomlkit

    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    text = text.removeprefix(BYTE_ORDER_MARK)
    expected = tomllib.loads(text)
    node = expected
    for key in keys[:-1]:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise ValueError(f"{key} is not a table")
    node[keys[-1]] = value

    if text and not text.endswith("\n"):
        text += "\n"
    document = tomlkit.parse(text)
    table: MutableMapping[str, Any] = document
    for key in keys[:-1]:
        if key not in table:
            if text and table is document:
                document.add(tomlkit.nl())
            table[key] = tomlkit.table()
        table = table[key]
    table[keys[-1]] = value
    changed = document.as_string()
    if tomllib.loads(changed) != expected:
        raise ValueError(f"{'.'.join(keys)} cannot be set without changing other values")
    if "\r\n" in text and not _LINE_FEED.search(text):
        changed = _LINE_FEED.sub("\r\n", changed)
    return mark + changed
