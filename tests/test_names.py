"""Names say what they name: the glossary's ban list and the collisions of names stay at zero.

``python -m tests.test_names [PATH …]`` lists what is left.
"""

import ast
import builtins
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ("agent", "tools", "tui")
BANNED = {
    "asked", "found", "given", "guests", "harmless", "held", "kept", "laid", "retold", "said",
    "shelf", "shown", "told", "whole",
}  # fmt: skip
"""Words that no name contains, in the code or in its tests."""
VAGUE = {"around", "one", "ones", "others", "place", "places", "thing", "things", "way", "ways",
         "what"}  # fmt: skip
"""Words that no name of the code, and no helper of the tests, contains."""


@cache
def sources(top: str) -> list[tuple[Path, ast.Module]]:
    """Every Python file below ``top``, parsed."""
    return [
        (path.relative_to(ROOT), ast.parse(path.read_text()))
        for path in sorted((ROOT / top).rglob("*.py"))
        if "node_modules" not in path.parts
    ]


def words(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name, in small letters."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Classes, functions, parameters, attributes and what a module or class assigns; no locals."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.arg():
                yield getattr(node, "name", None) or getattr(node, "arg", ""), node.lineno
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                yield node.attr, node.lineno
        if isinstance(node, ast.Module | ast.ClassDef):
            for target in assigned(node):
                yield target.id, target.lineno


def assigned(node: ast.Module | ast.ClassDef) -> Iterator[ast.Name]:
    """The names that a module or a class assigns in its own body."""
    for statement in node.body:
        match statement:
            case ast.Assign(targets=targets):
                yield from (n for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name() as target):
                yield target


def banned_names() -> list[str]:
    problems = []
    for top in (*CODE, "tests"):
        for path, tree in sources(top):
            for name, line in [(path.stem, 1), *names(tree)]:
                exempt = name.startswith("test_") and top == "tests"
                if bad := (BANNED if exempt else BANNED | VAGUE).intersection(words(name)):
                    problems.append(f"{path}:{line}: {name} ({', '.join(sorted(bad))})")
    return problems


def collisions() -> list[str]:
    """Public classes whose name means something else in another module."""
    homes = defaultdict(list)
    for top in CODE:
        for path, tree in sources(top):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes[node.name].append(str(path))
    return [f"{name}: {', '.join(where)}" for name, where in homes.items() if len(where) > 1]


def bare_constants() -> list[str]:
    """Numbers whose name is one word: it says neither the quantity nor the unit."""
    problems = []
    for top in CODE:
        for path, tree in sources(top):
            for node in tree.body:
                if not isinstance(node, ast.Assign) or len(node.targets) > 1:
                    continue
                (target,), value = node.targets, node.value
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = value.elts if isinstance(value, ast.Tuple) else [value]
                for name, number in zip(names, values, strict=False):
                    if (
                        isinstance(name, ast.Name)
                        and name.id.isupper()
                        and len(words(name.id)) < 2
                        and is_number(number)
                    ):
                        problems.append(f"{path}:{node.lineno}: {name.id}")
    return problems


def is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
    return False


def class_bases() -> dict[str, list[str]]:
    """The names of each class's bases, without their modules."""
    return {
        node.name: [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        for top in CODE
        for _, tree in sources(top)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def stray_exceptions() -> list[str]:
    """Exceptions that do not end in ``Error`` or have another root than ``AgentError``."""
    bases = class_bases()

    def roots(name: str) -> set[str]:
        if bases.get(name):
            return {name}.union(*map(roots, bases[name]))
        return {name}

    def is_exception(name: str) -> bool:
        kind = getattr(builtins, name, None)
        return isinstance(kind, type) and issubclass(kind, BaseException)

    return [
        name
        for name in bases
        if any(map(is_exception, roots(name)))
        and name != "AgentError"
        and not (name.endswith("Error") and "AgentError" in roots(name))
    ]


def test_names_contain_no_banned_word() -> None:
    assert banned_names() == []


def test_public_class_names_have_one_meaning() -> None:
    assert collisions() == []


def test_numeric_constants_say_quantity_and_unit() -> None:
    assert bare_constants() == []


def test_exceptions_end_in_error_under_one_root() -> None:
    assert stray_exceptions() == []


if __name__ == "__main__":
    for problem in [
        *(f"banned: {line}" for line in banned_names()),
        *(f"collision: {line}" for line in collisions()),
        *(f"constant: {line}" for line in bare_constants()),
        *(f"exception: {line}" for line in stray_exceptions()),
    ]:
        if not sys.argv[1:] or any(path in problem for path in sys.argv[1:]):
            print(problem)
