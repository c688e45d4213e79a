"""One thought and one code for what is the same task, however the corpus's writers put it.

Sums are written in the order in which a request names their numbers, so that the code is copied
from left to right; the thought says the sum's form. An expression that a request writes out is copied
as it stands, and the result before stands in a follow-up's form. Two entries with the same code
think the same.
"""

from __future__ import annotations

import ast
import re
from functools import cache, partial, reduce

from agent.tiny.train import corpus
from agent.tiny.train.corpus import CorpusEntry

LIST_SUM = "The sum of a list is asked."
"""What is thought where three numbers or more are added."""
ARITHMETIC = "This is arithmetic"
FOLLOWING = f"{ARITHMETIC} with the previous result"
"""What is thought of a follow-up that calculates with the result before."""
PREVIOUS = "previous"
"""The slot of a follow-up's code that is the result before."""
NUMBER_SLOTS = frozenset({"int", "decimal", "spelled", "year", "map"})
"""Sorts of slots that sums are made of."""
_WRITTEN_OPERATOR = re.compile(r"[)}]\s*[-+*/x×·÷:]\s*(?=[({])")
"""An operator between two slots of a request."""
_NODES = (ast.BinOp, ast.Name, ast.Constant, ast.Load, ast.Add, ast.Sub, ast.Mult, ast.Div)


def form(entry: CorpusEntry, request: str, decimals: bool) -> tuple[str, str]:
    """The thought and the code (with slots) of an intent for a request (with slots).

    ``decimals``: whether a value of the request has decimal places.
    """
    fields = entry.fields
    slots, code = fields.get("slots", {}), fields["code"].strip()
    follows = entry.table == "follow"
    if follows and fields.get("after") == "number":
        slots = {**slots, PREVIOUS: "int"}
    used = tuple((name, slots.get(name, "")) for name in corpus.SLOT.findall(code))
    found = _sum(code, used, 1 if follows else 2)
    if found is None:
        return _first_thought(entry), code
    tree, rounded_up = found
    positions = {name: request.find("{" + name + "}") for name in slots}
    tree = _reorder(tree, positions)
    code = ast.unparse(tree)
    operators = sum(isinstance(node, ast.BinOp) for node in ast.walk(tree))
    written_out = not rounded_up and len(_WRITTEN_OPERATOR.findall(request)) == operators
    if not (rounded_up or written_out) and re.fullmatch(r"_\w+( \+ _\w+){2,}", code):
        terms = re.sub(r"_(\w+)", r"{\1}", code.replace(" +", ","))
        return LIST_SUM, f"round(sum([{terms}]), 2)" if decimals else f"sum([{terms}])"
    shape = shape_of(code)
    code = re.sub(r"_(\w+)", r"{\1}", code)
    if rounded_up:
        code = f"import math\nmath.ceil({code})"
    elif operators > 1 and (decimals or "/" in shape) and not written_out:
        code = f"round({code}, 2)"
    how = FOLLOWING if follows else ARITHMETIC
    return f"{how}{', rounded up' * rounded_up}: {shape}.", code


def shape_of(code: str) -> str:
    """A sum with letters for its slots, ``_name``; the previous result stays a slot."""
    letters = {f"_{PREVIOUS}": f"{{{PREVIOUS}}}"}
    names = iter("abcdefgh")
    return re.sub(
        r"_\w+", lambda m: letters.get(m[0]) or letters.setdefault(m[0], next(names)), code
    )


@cache
def _sum(code: str, slots: tuple[tuple[str, str], ...], least: int) -> tuple[ast.expr, bool] | None:
    """Code that is a sum of at least so many slots, as one expression, and whether it is rounded up."""
    if len(slots) < least or not all(_is_number(kind) for _, kind in slots):
        return None
    try:
        body = ast.parse(corpus.SLOT.sub(r"_\1", code)).body
    except SyntaxError:
        return None
    names: dict[str, ast.expr] = {}
    for line in body[:-1]:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = _put_in(value, names)
            case ast.Import(names=[ast.alias(name="math")]):
                pass
            case _:
                return None
    if not isinstance(body[-1], ast.Expr):
        return None
    tree, rounded_up = _put_in(body[-1].value, names), False
    match tree:
        case ast.Call(func=ast.Name(id="round"), args=[inner, ast.Constant(value=1 | 2)]):
            tree = inner
        case ast.Call(func=ast.Attribute(attr="ceil"), args=[inner]):
            tree, rounded_up = inner, True
    tree = _percent(tree)
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            return None
        if isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
            return None
        if isinstance(node, ast.Name) and not node.id.startswith("_"):
            return None
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return (tree, rounded_up) if len(used) >= least and isinstance(tree, ast.BinOp) else None


def _is_number(kind: str) -> bool:
    """Whether a slot's values are numbers."""
    sort, _, rest = kind.partition(" ")
    return sort in NUMBER_SLOTS or (sort == "choice" and re.fullmatch(r"[\d.|]+", rest) is not None)


def _put_in(tree: ast.expr, names: dict[str, ast.expr]) -> ast.expr:
    """An expression with the values of the names in it."""

    class PutIn(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return names.get(node.id, node)

    result: ast.expr = PutIn().visit(tree)
    return result


_PERCENT = (
    (r"(.+) \* \(1 ([-+]) (\w+) / 100\)", r"\1 * (100 \2 \3) / 100"),
    (r"(\w+) ([-+]) \1 \* (\w+) / 100", r"\1 * (100 \2 \3) / 100"),
    (r"(\w+) \* 100 / (\w+)", r"\1 / \2 * 100"),
)
"""Ways to write percentages, and the one that is taken."""


def _percent(tree: ast.expr) -> ast.expr:
    text = ast.unparse(tree)
    for pattern, usual in _PERCENT:
        if re.fullmatch(pattern, text):
            return ast.parse(re.sub(pattern, usual, text), mode="eval").body
    return tree


def _reorder(tree: ast.expr, positions: dict[str, int]) -> ast.expr:
    """A sum whose terms, and products whose factors, stand as the request names them."""
    if not isinstance(tree, ast.BinOp):
        return tree
    if isinstance(tree.op, ast.Add | ast.Mult):
        kind = type(tree.op)
        parts = _chain(tree, kind)
        undone = ast.Sub if kind is ast.Add else ast.Div
        if not (isinstance(parts[0], ast.BinOp) and isinstance(parts[0].op, undone)):
            parts = sorted(
                (_reorder(part, positions) for part in parts),
                key=partial(_first_position, positions),
            )
            return reduce(lambda left, right: ast.BinOp(left, kind(), right), parts)
    return ast.BinOp(_reorder(tree.left, positions), tree.op, _reorder(tree.right, positions))


def _chain(tree: ast.expr, kind: type[ast.operator]) -> list[ast.expr]:
    """The terms of a sum, or the factors of a product."""
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, kind):
        return [*_chain(tree.left, kind), tree.right]
    return [tree]


def _first_position(positions: dict[str, int], tree: ast.expr) -> int:
    """Where the request names the first number of an expression; constants come first."""
    used = [positions[node.id[1:]] for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return min(used, default=-1)


def _kinds(entry: CorpusEntry) -> str:
    """Whether an entry's values are words: the same code sorts both."""
    return " ".join(
        "words" if kind.split()[0] in ("words", "word", "phrase") else "other"
        for kind in entry.fields.get("slots", {}).values()
    )


def _code(entry: CorpusEntry) -> str:
    """An entry's code with its slots numbered."""
    seen = {"previous": "{previous}"}
    return corpus.SLOT.sub(
        lambda m: seen.setdefault(m[1], f"{{{len(seen) - 1}}}"), entry.fields["code"].strip()
    )


@cache
def _thoughts() -> dict[tuple[str, str, str], str]:
    found: dict[tuple[str, str, str], str] = {}
    for table in ("intent", "follow"):
        for entry in corpus.entries(table):
            found.setdefault((table, _code(entry), _kinds(entry)), entry.fields["thought"])
    return found


def _first_thought(entry: CorpusEntry) -> str:
    """The thought of the first entry with the same code."""
    return _thoughts()[entry.table, _code(entry), _kinds(entry)]
