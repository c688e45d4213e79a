"""Docstrings, comments, texts and pages are plain English: the idioms below stay at zero.

``python -m tests.test_prose [PATH …]`` lists what is left.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator

from tests.support.program import ROOT
from tests.test_names import CODE, sources
from tests.test_texts import texts

START = r"(?:^|(?<=[.:;!?] )|(?<=\n))(?:And |But )?"
"""Where a sentence or its part behind a colon begins."""
IDIOMS = {
    "Of … first": START + r"Of (?!course\b)",
    "What as subject": START + r"What\b(?![^.?]*\?)",
    "How as subject": START + r"How\b(?! to\b)(?![^.?]*\?)",
    "Whose as subject": START + r"Whose\b",
    "so many": r"\b[Ss]o (?:many|much|often|few|long)\b(?! as\b)",
    "anew": r"\banew\b",
    "somebody": r"\b(?:[Ss]ome|[Nn]o|[Aa]ny)body\b(?! content)",
    "goes on": r"(?<!What )\b(?:go(?:es|ing)?|went|gone) on\b(?! which)",
    "beside": r"\b[Bb]esides?\b",
    "stands": r"\bst(?:ands?|ood|anding)(?: (?!for\b|in for\b|alone\b|out\b)|[.,;:])",
    "told": r"\b(?:re)?told\b",
    "whom, whoever": r"\b[Ww]ho(?:m(?:ever)?|(?:se)?ever)\b",
    "is no": r"(?<!here )(?<!ill )\b(?:is|are|was|were|be) no(?:ne)?\b(?! (?:longer|more|less|other) )",
    "these are": r"\b[Tt]hese are (?!not|the|those)",
    "alike": r"\balike\b",
    "by way of": r"\bby way of\b",
}
PATTERNS = {name: re.compile(pattern) for name, pattern in IDIOMS.items()}
PAGES = ["README.md", "CONTRIBUTING.md", "docs/*.md", "agent/server/README.md"]


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield strings that are statements: of functions, classes, modules and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, _joined(text)


def _joined(text: str) -> str:
    """Put each paragraph and each entry of a list on one line."""
    paragraphs = re.sub(r"\n[ \t]*\n\s*", "\n\n", text)
    return re.sub(r"[ \t]*\n[ \t]*(?!\n|[-*|] |:)", " ", paragraphs).strip()


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield comments; those in successive lines as one."""
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] != last + 1:
                yield last, " ".join(block)
                block = []
            last = token.start[0]
            block.append(token.string.lstrip("# "))
    if block:
        yield last, " ".join(block)


def page_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a Markdown page outside of its headings and code."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("#"):
            yield number, re.sub(r"`[^`]*`", "`…`", re.sub(r"^[-*#>|\s]+", "", line))


def prose() -> Iterator[tuple[str, int, str]]:
    """Yield every text with its file and line; 0: a string of the program."""
    for top in CODE:
        for path, tree in sources(top):
            file = path.as_posix()
            if file.startswith("agent/tiny/train"):
                continue
            source = (ROOT / path).read_text()
            yield from ((file, line, text) for line, text in docstrings(tree))
            yield from ((file, line, text) for line, text in comments(source))
            yield from ((file, 0, text) for text in texts(source))
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            for line, text in page_lines(path.read_text()):
                yield path.relative_to(ROOT).as_posix(), line, text


def problems(*paths: str) -> list[str]:
    """Return idioms in files whose path begins with one of ``paths``; without any, in all."""
    return [
        f"{file}:{line}: {name}: {text[max(0, match.start() - 60) : match.end() + 60]!r}"
        for file, line, text in prose()
        if file.startswith(paths or "")
        for name, pattern in PATTERNS.items()
        for match in pattern.finditer(text)
    ]


def test_prose_has_no_listed_idiom() -> None:
    assert problems() == []


if __name__ == "__main__":
    print("\n".join(problems(*sys.argv[1:])))
