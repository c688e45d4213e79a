"""Arguments and changes for reading: laid out, and coloured by what each piece is."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tui.util.format import shown
from tui.widgets.text_stream import INSET

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]

Run = tuple[str, str]
"""A text and its style: one of `stream.STYLES`, or none."""
LARGEST = 50_000
"""Characters; colouring more of them would be felt."""
WIDTH = 60
"""Columns; a longer object takes a line for each of its values."""
_CODE = '{"code":"'
"""How the arguments begin that are nothing but code."""
_WHOLE = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|'
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4})*"
)
"""As much of a JSON string as ends in no half escape."""
_OF_TOOL = {"python": "python", "shell": "bash", "container": "bash", "code_interpreter": "python"}
_LEAVES = {
    str: "string", int: "number", float: "number", bool: "keyword", type(None): "keyword",
}  # fmt: skip
_STYLES = {
    "Token.Keyword": "keyword",
    "Token.Operator.Word": "keyword",
    "Token.Name.Tag": "name",
    "Token.Name.Function": "name",
    "Token.Name.Class": "name",
    "Token.Name.Builtin": "name",
    "Token.Literal.String": "string",
    "Token.Literal.Number": "number",
    "Token.Comment": "comment",
    "Token.Generic.Inserted": "added",
    "Token.Generic.Deleted": "removed",
    "Token.Generic.Heading": "faint",
    "Token.Generic.Subheading": "faint",
}


class Written:
    """A call's arguments while they come; code as code, though it comes as a JSON string."""

    def __init__(self) -> None:
        self._left = ""
        self._is_code: bool | None = None

    def feed(self, text: str) -> str:
        """More of them; as much as can be shown already."""
        self._left += text
        if self._is_code is None:
            begun = re.sub(r"\s", "", self._left[: 2 * len(_CODE)])
            if len(begun) < len(_CODE) and _CODE.startswith(begun):
                return ""
            self._is_code = begun.startswith(_CODE)
            if self._is_code:
                self._left = self._left.split('"', 3)[3]
        if self._is_code:
            found = _WHOLE.match(self._left)
            assert found is not None
            self._left = self._left[found.end() :]
            return str(json.loads(f'"{found[0]}"', strict=False))
        whole, self._left = self._left, ""
        return whole


def arguments(text: str, tool: str = "") -> list[Run]:
    """A call's whole arguments: code as code, longer objects over several lines, and in those a text
    of several lines as text.

    ``tool``: as a person reads it, ``server · tool``; it tells in what its code is written.
    """
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            return [(text, "")]
        return _read(value, _language(tool))
    except (ValueError, RecursionError):
        return [(text, "")]


def _read(value: dict[str, Any], language: str) -> list[Run]:
    inner = next(iter(value.values())) if len(value) == 1 else None
    if isinstance(inner, str) and ("\n" in inner or "code" in value):
        patch = inner.startswith("*** ")
        return changes(inner) if patch else coloured(inner.rstrip("\n"), language)
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= WIDTH and "\\n" not in line:
        return coloured(line, "json")
    return list(_tree(value, "\n", language))


def _tree(value: Any, pad: str, language: str) -> Iterator[Run]:
    """JSON, a line for each value. ``pad``: the line break before what closes this one."""
    match value:
        case dict() if value:
            language = _of_file(value) or language
            keys = (f"{json.dumps(key, ensure_ascii=False)}: " for key in value)
            yield from _members("{}", zip(keys, value.values(), strict=True), pad, language)
        case [_, *_]:
            yield from _members("[]", (("", one) for one in value), pad, language)
        case str() if _has_lines(value):
            yield "\n", ""
            for piece, style in coloured(value.removesuffix("\n"), language):
                yield piece, style + INSET
        case _:
            yield shown(json.dumps(value, ensure_ascii=False)), _LEAVES.get(type(value), "")


def _members(
    brackets: str, members: Iterable[tuple[str, Any]], pad: str, language: str
) -> Iterator[Run]:
    yield brackets[0], ""
    behind = ""
    for key, value in members:
        yield f"{behind}{pad}  ", ""
        yield shown(key), "name"
        yield from _tree(value, f"{pad}  ", language)
        behind = "" if _has_lines(value) else ","
    yield pad + brackets[1], ""


def _has_lines(value: object) -> bool:
    return isinstance(value, str) and "\n" in value.removesuffix("\n")


def _of_file(value: dict[str, Any]) -> str:
    """In what its texts are written, where a file is named beside them."""
    names = (one for key, one in value.items() if "path" in key or "file" in key)
    return next((one.rpartition(".")[2] for one in names if isinstance(one, str)), "")


def _language(tool: str) -> str:
    names = [part.strip() for part in tool.split("·")]
    return next((_OF_TOOL[name] for name in names if name in _OF_TOOL), "")


def changes(text: str) -> list[Run]:
    """A diff, line by line."""
    return list(_changes(shown(text)))


def _changes(text: str) -> Iterator[Run]:
    for line in text.splitlines(keepends=True):
        match line[:1]:
            case "+" if not line.startswith("+++"):
                yield line, "added"
            case "-" if not line.startswith("---"):
                yield line, "removed"
            case "@" | "*" | "+" | "-":
                yield line, "faint"
            case _:
                yield line, ""


def coloured(text: str, language: str) -> list[Run]:
    """Code of a language that pygments knows; without one, or where it is long, plain."""
    text = shown(text)  # what JSON had escaped is not any more
    if len(text) > LARGEST or (lexer := _lexer(language)) is None:
        return [(text, "")]
    return [(piece, _style(str(kind))) for kind, piece in lexer.get_tokens(text) if piece]


@functools.lru_cache(32)
def _lexer(language: str) -> Lexer | None:
    if not language:
        return None
    # Not at the top: nothing is coloured before the first paint.
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _style(kind: str) -> str:
    """Of the nearest kind that has one: ``Token.Literal.String.Doc`` is a string."""
    while kind and kind not in _STYLES:
        kind = kind.rpartition(".")[0]
    return _STYLES.get(kind, "")
