"""Arithmetic requests: a sentence, the python code that answers it, and what python prints."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from functools import cache

from agent.tiny.train import code_form, corpus, phrases
from agent.tiny.train.corpus import slots
from agent.tiny.train.phrases import SYMBOLS
from agent.tiny.train.words import Split, expand, number

WORDS = phrases.ARITHMETIC["words"]
MANY = phrases.MANY
FOLLOW = phrases.ARITHMETIC["follow"]
OPERATIONS = [
    *["+"] * 2, *["-"] * 2, *["-from"] * 3, *["*"] * 3, *["/"] * 3, "**", "% ", *["many"] * 3,
]  # fmt: skip
"""What a sentence asks for, each as often as it is asked."""


def run(code: str) -> str:
    """What python prints for an expression of numbers, operators, `round` and `sum`, or the error."""
    try:
        return repr(eval(code, {"__builtins__": {"round": round, "sum": sum}}))
    except (ArithmeticError, ValueError, NameError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def spaced(code: str) -> str:
    """An expression with a space on each side of an operator, as the corpus writes its code."""
    return re.sub(r" ?(?<!\()(\*\*|//|[-+*/%]) ?", r" \1 ", code)


@cache
def _thoughts() -> dict[str, str]:
    """The corpus's thought for each shape of code, that of the most requests."""
    counts: dict[str, Counter[str]] = {}
    rng = random.Random(0)
    for entry in corpus.entries("intent"):
        if not entry.path.name.startswith("arithmetic"):
            continue  # what a story calls its sum
        code = entry.fields["code"].strip()
        for name, value in slots.fill(rng, entry.fields.get("slots", {})).items():
            code = code.replace(f"{{{name}}}", "x" if "." in value.code else "a")
        if re.fullmatch(r"[ax()+*/% -]+", code):
            shape = counts.setdefault(code, Counter())
            shape[code_form.form(entry, entry.requests[0], False)[0]] += len(entry.requests)
    return {code: thoughts.most_common(1)[0][0] for code, thoughts in counts.items()}


def thought(code: str) -> str:
    """What is thought of a spaced expression: as in the corpus, so that one text is right."""
    if "sum(" in code:
        return f"{code_form.LIST_SUM} I run python."
    if re.fullmatch(r"[\d.()+*/ -]+", code) and "**" not in code and "//" not in code:
        count = itertools.count()
        shape = code_form.shape_of(re.sub(r"\d+(?:\.\d+)?", lambda _: f"_{next(count)}", code))
        return f"{code_form.ARITHMETIC}: {shape}. I run python."
    numbers = re.sub(r"\d+", "a", re.sub(r"\d+\.\d+", "x", code))
    found = _thoughts().get(numbers) or _thoughts().get(numbers.replace("x", "a"))
    return f"{found or code_form.ARITHMETIC + '.'} I run python."


def bare(rng: random.Random, split: Split) -> tuple[str, str]:
    """A short expression and nothing else, as the first thing that many type."""
    a, b = (str(rng.randint(0, 99)) if rng.random() < 0.7 else number(rng, split) for _ in range(2))
    gap = rng.choice(["", "", " "])
    text = f"{a}{gap}{rng.choice('+-*/')}{gap}{b}"
    return text + rng.choice(["", "", "", "", "?", "=", " =", " = ?", "=?"]), spaced(text)


def request(rng: random.Random, split: Split) -> tuple[str, str]:
    """A sentence and its code."""
    while True:
        sentence, code = _request(rng, split)
        code = spaced(code)
        if len(run(code)) <= 24 or "Error" in run(code):
            return sentence, code


def _request(rng: random.Random, split: Split) -> tuple[str, str]:
    if split == "train" and rng.random() < 0.3:
        return _repeating(rng)
    a, b = number(rng, split), number(rng, split)
    if rng.random() < 0.45:
        shape = rng.random()
        op = rng.choice("+-**//")
        gap = rng.choice(["", " ", " "])
        if shape < 0.45:
            code = f"{a}{gap}{op}{gap}{b}"
        elif shape < 0.5:
            code = f"{a}{gap}{op}{gap}(-{b})"
        elif shape < 0.56:
            code = f"{rng.randint(2, 30)}{gap}**{gap}{rng.randint(2, 12)}"
        else:
            c, op2 = number(rng, split), rng.choice("+-*/")
            code = f"{a}{gap}{op}{gap}{b}{gap}{op2}{gap}{c}"
            d, op3 = str(rng.randint(1, 99)), rng.choice("+-*/")
            if shape > 0.97:
                code = f"(({a}{gap}{op}{gap}{b}){gap}{op2}{gap}{c}){gap}{op3}{gap}{d}"
            elif shape > 0.92:
                code = f"({a}{gap}{op}{gap}{b}){gap}{op2}{gap}({c}{gap}{op3}{gap}{d})"
            elif shape > 0.88:
                code = f"{a}{gap}{op}{gap}({b}{gap}{op2}{gap}{c})"
            elif shape > 0.75:
                code = f"({a}{gap}{op}{gap}{b}){gap}{op2}{gap}{c}"
            if shape < 0.88 and rng.random() < 0.15:
                code += f"{gap}{rng.choice('+-*')}{gap}{number(rng, split)}"
        return expand(rng, rng.choice(SYMBOLS), [code]), code
    op = rng.choice(OPERATIONS)
    if op == "many":
        values = [number(rng, split) for _ in range(rng.randint(3, 4))]
        listed = ", ".join(values[:-1]) + rng.choice([" and ", ", ", " and "]) + values[-1]
        verb = rng.choice(MANY)
        return expand(rng, verb, [listed]), _total(values)
    if op == "**":
        a, b = str(rng.randint(2, 60)), str(rng.randint(2, 14))
    if op == "/" and rng.random() < 0.5 and "." not in a + b:
        a = str(int(a) * int(b))
    sentence = expand(rng, rng.choice(WORDS[op]), [a, b])
    return sentence, f"{a} {op[0] if op != '**' else '**'} {b}"


def _total(values: list[str]) -> str:
    """The code of a sum of several numbers, as the corpus has it."""
    code = f"sum([{', '.join(values)}])"
    return f"round({code}, 2)" if "." in code else code


def _repeating(rng: random.Random) -> tuple[str, str]:
    """What is hardest to copy: numbers that come again or have parts in common."""
    small = [str(rng.randint(1, 99)) for _ in range(2)]
    near = [*small, *small, f"{small[0]}.{rng.randint(1, 99)}", number(rng, "train")]
    near += [f"{rng.randint(100, 99999)}.{rng.randint(1, 99)}", str(rng.randint(1, 9))]
    kind = rng.random()
    if kind < 0.35:
        values = rng.sample(near, rng.choice([3, 3, 4, 4]))
        listed = ", ".join(values[:-1]) + rng.choice([" and ", ", ", " and "]) + values[-1]
        return expand(rng, rng.choice(MANY), [listed]), _total(values)
    gap = rng.choice(["", " ", " "])
    if kind < 0.65:
        code = f"{rng.randint(1, 99)}{gap}/{gap}{rng.choice([3, 6, 7, 9, 11, 12, 13, 15, 30])}"
    else:
        a, b, c = rng.sample(near, 3)
        op, op2 = rng.choice("+-*/"), rng.choice("+-*/")
        code = f"{a}{gap}{op}{gap}{b}"
        if kind < 0.9:
            code += f"{gap}{op2}{gap}{c}"
        if kind < 0.75:
            code = f"({a}{gap}{op}{gap}{b}){gap}{op2}{gap}{c}"
        elif kind < 0.81:
            code = f"{a}{gap}{op}{gap}({b}{gap}{op2}{gap}{c})"
    if kind < 0.7 or rng.random() < 0.6 or "(" in code:
        return expand(rng, rng.choice(SYMBOLS), [code]), code
    a, b, op = near[0], near[4], rng.choice("+-*/")
    word = "-from" if op == "-" and rng.random() < 0.4 else op
    return expand(rng, rng.choice(WORDS[word]), [a, b]), f"{a} {op} {b}"


def simple(rng: random.Random, split: Split) -> str:
    """A short expression of two numbers."""
    gap = rng.choice(["", " ", " "])
    return f"{number(rng, split)}{gap}{rng.choice('+-**/')}{gap}{number(rng, split)}"
