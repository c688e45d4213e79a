"""Formats tool-call arguments and diffs for reading: laid out, with a style for each token."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tui.util.format import INSET, StyledRun, display_text

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]

MAX_HIGHLIGHT_CHARS = 50_000
"""Characters of code that are highlighted without a noticeable delay; more is shown plain."""
SINGLE_LINE_COLUMNS = 60
_CODE_PREFIX = '{"code":"'
"""Start of the arguments of a call whose only argument is code (blanks left out)."""
_COMPLETE_CHARS = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|'
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4})*"
)
"""The start of a JSON string, up to an escape of which only a part has come."""
_TOOL_LANGUAGES = {
    "python": "python",
    "shell": "bash",
    "container": "bash",
    "code_interpreter": "python",
}
_VALUE_STYLES = {
    str: "string", int: "number", float: "number", bool: "keyword", type(None): "keyword",
}  # fmt: skip
_TOKEN_STYLES = {
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


class ArgumentStream:
    """Decodes a call's arguments while they stream: code as code, though it comes as a JSON string."""

    def __init__(self) -> None:
        self._pending = ""
        self._is_code: bool | None = None

    def feed(self, text: str) -> str:
        self._pending += text
        if self._is_code is None:
            start = re.sub(r"\s", "", self._pending[: 2 * len(_CODE_PREFIX)])
            if len(start) < len(_CODE_PREFIX) and _CODE_PREFIX.startswith(start):
                return ""
            self._is_code = start.startswith(_CODE_PREFIX)
            if self._is_code:
                self._pending = self._pending.split('"', 3)[3]
        if self._is_code:
            complete = _COMPLETE_CHARS.match(self._pending)
            assert complete is not None
            self._pending = self._pending[complete.end() :]
            return str(json.loads(f'"{complete[0]}"', strict=False))
        text, self._pending = self._pending, ""
        return text


def format_arguments(text: str, tool: str = "") -> list[StyledRun]:
    """Format the arguments of a call, JSON or any text: a single code argument as code, a long object
    on several lines, multi-line strings as quoted text. ``tool``: ``server · tool``."""
    with suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), dict):
            return _format_object(value, _tool_language(tool))
    return [(text, "")]


def format_preview(text: str, tool: str = "") -> list[StyledRun]:
    """Format a tool's preview of a call: ``FOLDER$ COMMAND`` of a shell, or a diff."""
    folder, sign, command = text.partition("$ ")
    if sign and "\n" not in folder and _tool_language(tool) == "bash":
        return [(display_text(folder + sign), "faint"), *highlight(command, "bash")]
    return list(format_diff(text))


def _format_object(value: dict[str, Any], language: str) -> list[StyledRun]:
    if language == "bash" and (command := _command_line(value.get("cmd"))):
        others = {name: other for name, other in value.items() if name != "cmd"}
        more = [("\n", ""), *_format_object(others, language)] if others else []
        return [*highlight(command, "bash"), *more]
    inner = next(iter(value.values())) if len(value) == 1 else None
    if isinstance(inner, str) and ("\n" in inner or "code" in value):
        patch = inner.startswith("*** ")
        return list(format_diff(inner)) if patch else highlight(inner.rstrip("\n"), language)
    line = json.dumps(value, ensure_ascii=False)
    if len(line) <= SINGLE_LINE_COLUMNS and "\\n" not in line:
        return highlight(line, "json")
    return list(_json_tree(value, "\n", language))


def _command_line(words: object) -> str:
    from tools.policy.commands import display_line  # not needed before the first paint

    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return ""
    return display_line(words)


def _json_tree(value: Any, indent: str, language: str) -> Iterator[StyledRun]:
    """Yield JSON with a line for each value. ``indent``: the line break before the closing bracket."""
    match value:
        case dict() if value:
            # The suffix of a file that it names is the language of its texts.
            paths = (path for key, path in value.items() if "path" in key or "file" in key)
            suffixes = (path.rpartition(".")[2] for path in paths if isinstance(path, str))
            language = next(suffixes, "") or language
            keys = (f"{json.dumps(key, ensure_ascii=False)}: " for key in value)
            yield from _json_members("{}", zip(keys, value.values(), strict=True), indent, language)
        case [_, *_]:
            yield from _json_members("[]", (("", item) for item in value), indent, language)
        case str() if _is_multiline(value):
            yield "\n", ""
            for piece, style in highlight(value.removesuffix("\n"), language):
                yield piece, style + INSET
        case _:
            text = display_text(json.dumps(value, ensure_ascii=False))
            yield text, _VALUE_STYLES.get(type(value), "")


def _json_members(
    brackets: str, members: Iterable[tuple[str, Any]], indent: str, language: str
) -> Iterator[StyledRun]:
    yield brackets[0], ""
    comma = ""
    for key, value in members:
        yield f"{comma}{indent}  ", ""
        yield display_text(key), "name"
        yield from _json_tree(value, f"{indent}  ", language)
        comma = "" if _is_multiline(value) else ","
    yield indent + brackets[1], ""


def _is_multiline(value: object) -> bool:
    return isinstance(value, str) and "\n" in value.removesuffix("\n")


def _tool_language(tool: str) -> str:
    names = [part.strip() for part in tool.split("·")]
    return next((_TOOL_LANGUAGES[name] for name in names if name in _TOOL_LANGUAGES), "")


def format_diff(text: str) -> Iterator[StyledRun]:
    for line in display_text(text).splitlines(keepends=True):
        match line[:1]:
            case "+" if not line.startswith("+++"):
                yield line, "added"
            case "-" if not line.startswith("---"):
                yield line, "removed"
            case "@" | "*" | "+" | "-":
                yield line, "faint"
            case _:
                yield line, ""


def highlight(text: str, language: str) -> list[StyledRun]:
    """Highlight code in a language that Pygments knows; unstyled without one, or if it is too long."""
    text = display_text(text)  # decoding the JSON may have brought control characters back
    if len(text) > MAX_HIGHLIGHT_CHARS or (lexer := _lexer(language)) is None:
        return [(text, "")]
    return [(piece, _token_style(str(kind))) for kind, piece in lexer.get_tokens(text) if piece]


@functools.lru_cache(32)
def _lexer(language: str) -> Lexer | None:
    if not language:
        return None
    # Not at the top: nothing is highlighted before the first paint.
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    with suppress(ClassNotFound):
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    return None


def _token_style(token_type: str) -> str:
    """Return the style of the nearest type that has one: ``Token.Literal.String.Doc`` is a string."""
    while token_type and token_type not in _TOKEN_STYLES:
        token_type = token_type.rpartition(".")[0]
    return _TOKEN_STYLES.get(token_type, "")
