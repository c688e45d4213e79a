"""Lists what errors and `agent doctor` can say, from the source; `docs/troubleshooting.md` has it all.

``python -m tests.messages`` updates the page: it removes messages that are gone, and puts new ones
behind those of the same file, where a person then moves them below the remedy that fits.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.support.program import ROOT
from tests.test_names import CODE, class_bases, sources
from tests.test_texts import texts

PAGE = ROOT / "docs" / "troubleshooting.md"
FOR_PROGRAMS = {"ApiError", "OnceOnlyError", "ToolError"}
"""Errors whose readers are clients and models."""
OTHER_FILES = (
    *("agent/cli/doctor.py", "tools/sandbox/isolation.py"),
    *("agent/cli/process.py", "agent/store/damage.py", "tools/builtin/browser/extraction.py"),
)
"""Where sentences are made that are no argument of an exception."""
_FINDING = re.compile(r"[;:(]|(\S+ ){4}")
"""A line of doctor, and not the name of what it checks."""
_NO_PERSON = re.compile(
    r"agent/(tiny/train|server/(?!serve)|formats/markup/template_child)|tui/screens/"
)


@cache
def error_classes() -> set[str]:
    """The names of the program's exceptions that people read."""
    bases = class_bases()

    def is_error(name: str) -> bool:
        return name == "AgentError" or any(map(is_error, bases.get(name, ())))

    return {name for name in bases if is_error(name)} - FOR_PROGRAMS


@cache
def messages() -> dict[str, str]:
    """Every message with the file that says it; `…` stands for what is put in."""
    result: dict[str, str] = {}
    for top in CODE:
        for path, tree in sources(top):
            file = path.as_posix()
            if _NO_PERSON.match(file):
                continue
            found = [*raised(tree)]
            if file in OTHER_FILES:
                all_texts = texts(ast.unparse(tree))
                found += [
                    t for t in all_texts if _FINDING.search(t) and not t.startswith("Resume ")
                ]
            for text in found:
                if message := normal(text):
                    result.setdefault(message, file)
    return result


def raised(tree: ast.Module) -> Iterator[str]:
    """The texts of exceptions that a module makes, also by way of a variable or a function of it."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values.setdefault(name, []).append(value)
            case ast.FunctionDef(name=name):
                values[name] = [
                    each.value
                    for each in ast.walk(node)
                    if isinstance(each, ast.Return) and each.value is not None
                ]

    def strings(node: ast.expr, depth: int = 0) -> list[str]:
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                return ["".join(p.value if isinstance(p, ast.Constant) else "…" for p in parts)]
            case ast.BinOp(left=left, right=right):
                ends = strings(right, depth) or ["…"]
                return [a + b for a in strings(left, depth) or ["…"] for b in ends]
            case ast.IfExp(body=body, orelse=orelse):
                return strings(body, depth) + strings(orelse, depth)
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if depth < 2:
                return [
                    text for value in values.get(name, ()) for text in strings(value, depth + 1)
                ]
        return []

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (
            (name := ast.unparse(node.func)).rpartition(".")[2] in error_classes()
            or (name == "super().__init__" and node.args)
        ):
            for argument in node.args:
                yield from strings(argument)
        if isinstance(node, ast.keyword) and node.arg == "failure":  # of user_errors()
            yield from (f"{text}: …." for text in strings(node.value))


def normal(text: str) -> str:
    """One line, with `…` for each hole; empty for what says nothing by itself."""
    text = re.sub(r"\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", "…", text).replace("`", "'")
    text = re.sub(r"(…\s*)+…", "…", " ".join(text.split())).lstrip(",; ")
    return (
        text if re.search(r"[a-z]{2,}", text) and len(text.split()) > 2 and text[0] != "(" else ""
    )


def listed(page: str) -> list[str]:
    """The messages that the page has."""
    return re.findall(r"^- `(.+)`$", page, re.MULTILINE)


def update(page: str) -> str:
    """The page with the messages of the source, and no others."""
    lines = [
        line for line in page.split("\n") if not line.startswith("- `") or line[3:-1] in messages()
    ]
    for message, file in messages().items():
        if f"- `{message}`" not in lines:
            near = [at for at, line in enumerate(lines) if messages().get(line[3:-1]) == file]
            headings = Counter(
                max(i for i in range(at) if lines[i].startswith("## ")) for at in near
            )
            best = headings.most_common(1)[0][0] if headings else -1
            at = max((at for at in near if at > best), default=len(lines) - 1)
            lines.insert(at + 1, f"- `{message}`")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text()))
