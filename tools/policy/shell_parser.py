"""Parses a shell script with tree-sitter's bash: every command that it may run, every file that it
writes. `parse_script` refuses a script whose meaning is not certain (an unknown construct, character or
word), with the reason. ``make attack GROUPS=rules`` holds random scripts against bash itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tools.policy.programs import Word
from tools.policy.rules import OnceOnlyError, check_characters

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_SCRIPT_CHARS, MAX_NODE_DEPTH = 20_000, 100
SAFE_VARIABLES = frozenset(("LANG", "LC_ALL", "TZ", "NO_COLOR", "FORCE_COLOR", "COLUMNS",
                            "CI", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
                            "RUST_BACKTRACE"))  # fmt: skip
"""Environment variables that change no program's meaning."""
FREE_TARGETS = ("/dev/null", "/dev/stdout", "/dev/stderr")
"""Targets of redirections that are not files."""

_BLANKS = re.compile(r"[ \t\n]*\Z")
_EXPANSION_START = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[(\[{\w@*#?$!-])")
"""Where a shell begins to replace something in a text."""
_PIECE = re.compile(
    r"""'([^']*)'|"((?:\\.|[^"\\$`]|\$(?![(\[{\w@*#?$!-]))*)"|\\(.)|"""
    r"""((?:[^\s'"\\$`|&;()<>]|\$(?![(\[{\w@*#?$!'"-]))+)""",
    re.DOTALL,
)
"""A part of a word in which nothing is replaced: quoted so or so, one character, or bare."""
_BRACE_WORD = re.compile(r"\{(?:\}\Z|\w*(?:,|\.\.))")
"""Not ``{name}``, a variable that is set where a redirection follows."""
_DUPLICATED = re.compile(r"\d\Z|[A-Za-z_./][\w./-]*\Z")
"""Behind ``>&``, where bash expands a word twice."""
_PATTERN = re.compile(r"[*?\[]|(?:^|[=:])~|\{.*(?:,|\.\.)", re.DOTALL)
"""Where a bare part becomes something else."""
_LOCAL_NAME = re.compile(r"[a-z_][a-z0-9_]*\Z")
"""A variable that no program reads; those of the environment are in capitals."""
_EXPANSION = re.compile(r"\$\{[A-Za-z_]\w*(?:(?:%%?|##?)[\w.*/-]*)?\}\Z")
_GROUPS = frozenset(
    ("program", "list", "pipeline", "subshell", "compound_statement", "redirected_statement",
     "negated_command", "if_statement", "elif_clause", "else_clause", "while_statement",
     "do_group", "command_substitution", "process_substitution", "command_name", "concatenation",
     "string", "heredoc_body", "herestring_redirect")
)  # fmt: skip
_LEAVES = frozenset(
    ("word", "number", "raw_string", "ansi_c_string", "string_content", "simple_expansion",
     "variable_name", "special_variable_name", "file_descriptor", "heredoc_start", "heredoc_content",
     "heredoc_end")
)  # fmt: skip
_TOKENS = frozenset(
    ("\n", "\"", "$", "`", "$(", "<(", ">(", "(", ")", "{", "}", "=", "+=", "!", ";", "&", "&&", "|",
     "||", "|&", ">", ">>", ">|", "&>", "&>>", ">&", ">&-", "<", "<&", "<&-", "<<", "<<-", "<<<",
     "if", "then", "elif", "else", "fi", "while", "until", "for", "in", "do", "done", "test")
)  # fmt: skip
_WORDS = frozenset(("word", "number", "raw_string", "string", "concatenation", "simple_expansion",
                    "expansion", "command_substitution", "ansi_c_string"))  # fmt: skip
_FULL_WORDS = frozenset(("word", "number", "raw_string", "string"))
"""Words that stay one word, whatever is replaced in them."""
_TEXTS = frozenset(("string", "heredoc_body"))
"""Nodes with text between their children."""
_SEQUENCES = frozenset(("program", "subshell", "compound_statement", "do_group", "if_statement",
                        "elif_clause", "else_clause", "command_substitution"))  # fmt: skip
"""Nodes whose parts are commands, one after the other."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command of a script."""

    words: tuple[Word, ...]
    """Program and arguments; empty where variables are only set."""
    variables: tuple[tuple[str, str | None], ...] = ()
    """Variables that are set for it: names and values; a value of None is not known beforehand."""
    fed: bool = False
    """Whether something is written to its stdin."""


@dataclass(slots=True)
class ParsedScript:
    """The commands and written files of a script."""

    commands: list[ShellCommand] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    """Targets of redirections, as they are written."""


def parse_script(source: str, *, fed: bool = False) -> ParsedScript:
    """Parse a script; ``fed``: something is written to its stdin. Raises OnceOnlyError."""
    if len(source) > MAX_SCRIPT_CHARS:
        raise OnceOnlyError("it is too long to be taken apart")
    check_characters(source)
    try:
        from tree_sitter import Language, Parser
        from tree_sitter_bash import language
    except ImportError:
        raise OnceOnlyError("the packages tree-sitter and tree-sitter-bash are missing") from None
    data = source.encode()
    root = Parser(Language(language())).parse(data).root_node
    if root.has_error:
        raise OnceOnlyError("it is not a shell command that can be parsed")
    walk = _Walk(data)
    walk.check_gap(0, root.start_byte)
    walk.check_gap(root.end_byte, len(data))
    walk.visit(root, fed, 0)
    return walk.script


class _Walk:
    """Visits all nodes of a script once. All methods raise OnceOnlyError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.script = ParsedScript()

    def visit(self, node: Node, fed: bool, depth: int) -> None:
        """Collect the commands and targets in a node; ``fed``: something is written to its stdin."""
        if depth > MAX_NODE_DEPTH:
            raise OnceOnlyError("it is nested too deeply")
        if node.is_missing:
            raise OnceOnlyError("a part of it is missing")
        self._check_gaps(node)
        match node.type:
            case "command":
                self._add_command(node, fed)
            case "variable_assignment" if node.parent is None or node.parent.type != "command":
                self.script.commands.append(ShellCommand((), (self._variable(node),)))
            case "variable_assignment":
                pass  # of its command
            case "for_statement":
                self._check_loop(node)
            case "test_command":
                self._add_test(node)
                return
            case "file_redirect":
                self._add_redirect(node)
            case "heredoc_redirect":
                self._check_heredoc(node)
            case "expansion":
                if not _EXPANSION.match(self._text(node)):
                    raise OnceOnlyError(f"it has the expansion {self._text(node)}")
                return
            case "comment":
                self._check_comment(node)
            case kind if node.is_named and kind not in _GROUPS | _LEAVES:
                raise OnceOnlyError(f"it has a part ({kind}) that cannot be taken apart")
            case kind if not node.is_named and kind not in _TOKENS:
                raise OnceOnlyError(f"it has {kind}, which cannot be taken apart")
        children = node.children
        fed = fed or any(
            part.type in ("heredoc_redirect", "herestring_redirect")
            or (part.type == "file_redirect" and b"<" in (part.text or b""))
            for part in children
        )
        for index, child in enumerate(children):
            self.visit(child, fed or (node.type == "pipeline" and index > 0), depth + 1)

    # --- the parts of a script ---

    def _add_command(self, node: Node, fed: bool) -> None:
        words: list[Word] = []
        variables: list[tuple[str, str | None]] = []
        for child in node.children:
            match child.type:
                case "variable_assignment":
                    variables.append(self._variable(child))
                case "command_name":
                    words.append(self._word(child.children[0]))
                case "file_redirect" | "herestring_redirect":
                    fed = fed or b"<" in (child.text or b"")
                case _:
                    words.append(self._word(child))
        if not words or words[0].value is None:
            raise OnceOnlyError("which program it runs is known only once it runs")
        self.script.commands.append(ShellCommand(tuple(words), tuple(variables), fed))

    def _variable(self, node: Node) -> tuple[str, str | None]:
        name, _, *value = node.children
        if name.type != "variable_name":
            raise OnceOnlyError(f"it sets {self._text(node)}")
        return self._text(name), (self._word(value[0]).value if value else "")

    def _check_loop(self, node: Node) -> None:
        name = next(child for child in node.children if child.type == "variable_name")
        if node.children[0].type != "for" or not is_local_name(self._text(name)):
            raise OnceOnlyError(f"its loop sets {self._text(name)}")
        for child in node.children:
            if child.type in _WORDS:
                self._word(child)

    def _add_test(self, node: Node) -> None:
        """Read ``[ … ]`` as the command that it is; ``[[ … ]]`` calculates, which may run anything."""
        text = self._text(node)
        if not (text.startswith("[ ") and text.endswith(" ]")):
            raise OnceOnlyError("it has a part ([[ … ]]) that cannot be taken apart")
        inner = parse_script(f"test {text[2:-2]}")
        self.script.commands += inner.commands
        self.script.written += inner.written

    def _add_redirect(self, node: Node) -> None:
        operator = next(child for child in node.children if not child.is_named)
        nodes = [c for c in node.children if c.is_named and c.type != "file_descriptor"]
        targets = [self._word(each) for each in nodes]
        descriptor = node.children[0]
        if descriptor.type == "file_descriptor" and len(self._text(descriptor)) > 1:
            raise OnceOnlyError(f"it has the redirection {self._text(node)}")
        # The parser takes what follows for targets too; for a shell it belongs to the command.
        if len(nodes) != (0 if operator.type.endswith("-") else 1):
            raise OnceOnlyError("it has words behind a redirection")
        if "&" in operator.type and not all(_DUPLICATED.match(self._text(n)) for n in nodes):
            raise OnceOnlyError(f"it has the redirection {self._text(node)}")
        if operator.type in ("<&", ">&") and all((t.value or "x").isdigit() for t in targets):
            return
        if operator.type in ("<&-", ">&-", "<"):
            return
        if operator.type not in (">", ">>", ">|", "&>", "&>>", ">&"):
            raise OnceOnlyError(f"it has the redirection {self._text(node)}")
        if (target := targets[0].value) is None:
            raise OnceOnlyError("which file it writes is known only once it runs")
        if target not in FREE_TARGETS:
            self.script.written.append(target)

    def _check_heredoc(self, node: Node) -> None:
        """Make sure that the text ends where a shell ends it."""
        start = next(child for child in node.children if child.type == "heredoc_start")
        end = next((child for child in node.children if child.type == "heredoc_end"), None)
        if any(child.type in _WORDS for child in node.children):
            raise OnceOnlyError("it has words behind a redirection")
        match = re.fullmatch(r"(['\"]?)(\w+)\1", self._text(start))
        lines = self._data.decode().split("\n")
        if match is None or end is None or lines[start.start_point[0]].count("<<") != 1:
            raise OnceOnlyError("it has a here-document that cannot be taken apart")
        tabs = "\t" if self._text(node).startswith("<<-") else ""
        following = range(start.start_point[0] + 1, len(lines))
        last = next((n for n in following if lines[n].lstrip(tabs or "\n") == match[2]), None)
        if last != end.start_point[0]:
            raise OnceOnlyError("it has a here-document that cannot be taken apart")

    def _check_comment(self, node: Node) -> None:
        before = self._data[node.start_byte - 1 : node.start_byte].decode("utf-8", "replace")
        if before not in ("", " ", "\t", "\n", ";", "&", "|", "(", ")") or "\n" in self._text(node):
            raise OnceOnlyError("it has a comment that cannot be distinguished from a word")

    # --- words ---

    def _word(self, node: Node) -> Word:
        """Return a word's value; None: it is known only when a shell expands it."""
        text = self._text(node)
        if node.type not in ("word", "number", "string", "raw_string", "concatenation"):
            return Word(None, maybe_option=text not in ("$!", "$?", "$#", "$$"))
        if "\\\n" in text:
            raise OnceOnlyError("a word of it continues in the next line")
        if text.startswith("{") and not _BRACE_WORD.match(text):
            raise OnceOnlyError(f"it has the word {text}, which is not clear")
        if not _expansions(node):
            pieces = list(_PIECE.finditer(text))
            if "".join(piece[0] for piece in pieces) != text:
                raise OnceOnlyError(f"it has the word {text}, which is not clear")
            if not any(_PATTERN.search(piece[4] or "") for piece in pieces):
                return Word("".join(map(_unquoted, pieces)))
        # As many words as its bare parts make; quoted ones stay one word, except "$@".
        parts = node.children if node.type == "concatenation" else [node]
        certain = re.match(r"[\w./,:@%+=]", text.lstrip("'\"")) and "$@" not in text
        alone = all(part.type in _FULL_WORDS for part in parts)
        return Word(None, maybe_option=not (certain and alone))

    def _text(self, node: Node) -> str:
        return self._data[node.start_byte : node.end_byte].decode()

    # --- nothing is overlooked ---

    def _check_gaps(self, node: Node) -> None:
        if node.type in _TEXTS or node.type in ("string_content", "heredoc_content"):
            self._check_text(node)
            return
        at, before = node.start_byte, None
        for child in node.children:
            gap = self.check_gap(at, child.start_byte)
            # Where the parser divides or joins words otherwise than a shell does.
            follows = before is not None and before.is_named
            if follows and child.type in _WORDS and bool(gap) == (node.type == "concatenation"):
                raise OnceOnlyError("it has a word that is not clear")
            if "\n" in gap and node.type == "command":
                raise OnceOnlyError("it has a command of several lines")
            follows = follows and child.is_named and child.type != "comment"
            if follows and node.type in _SEQUENCES and "\n" not in gap:
                raise OnceOnlyError("it has commands that nothing separates")
            at, before = max(at, child.end_byte), child
        if node.children:
            self.check_gap(at, node.end_byte)

    def _check_text(self, node: Node) -> None:
        """Make sure that what a shell would replace in a text is a part of its own."""
        if node.type == "heredoc_body" and self._is_literal(node):
            return
        at = node.start_byte
        ends = [(child.start_byte, child.end_byte) for child in node.children]
        for start, end in [*ends, (node.end_byte, node.end_byte)]:
            if _EXPANSION_START.search(self._data[at:start].decode("utf-8", "replace")):
                raise OnceOnlyError("it has a text in which something is replaced")
            at = end

    def _is_literal(self, body: Node) -> bool:
        """Return whether the end of a here-document is quoted: then nothing in it is replaced."""
        siblings = body.parent.children if body.parent else []
        return any(c.type == "heredoc_start" and self._text(c)[0] in "'\"" for c in siblings)

    def check_gap(self, start: int, end: int) -> str:
        """Make sure that there are only blanks between two parts, and return them."""
        gap = self._data[start:end].decode("utf-8", "replace")
        blanks = gap.replace("\\\n", "")
        # A continued line without a blank joins two words.
        if not _BLANKS.match(blanks) or (gap and not blanks):
            raise OnceOnlyError("it has characters that belong to no part of it")
        return blanks


def _expansions(node: Node) -> bool:
    if node.type in ("simple_expansion", "expansion", "command_substitution", "ansi_c_string",
                     "arithmetic_expansion", "process_substitution", "brace_expression",
                     "translated_string"):  # fmt: skip
        return True
    return any(_expansions(child) for child in node.children)


def is_local_name(name: str) -> bool:
    """Return whether no program reads a variable of this name: those of programs are capitals."""
    return bool(_LOCAL_NAME.match(name)) and not name.endswith("_proxy")


def _unquoted(piece: re.Match[str]) -> str:
    single, double, character, bare = piece.groups()
    if double is not None:
        return re.sub(r"\\([$`\"\\])", r"\1", double)
    return single or character or bare or ""
