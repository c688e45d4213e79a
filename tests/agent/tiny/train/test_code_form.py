"""One thought and one code for the same task: the code still gives what the corpus's code gives."""

from __future__ import annotations

import ast
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from agent.tiny.train import code_form, corpus
from agent.tiny.train.corpus import CorpusEntry, slots


def entry(code: str, **kinds: str) -> CorpusEntry:
    fields = {"name": "one", "thought": "Its own.", "slots": kinds, "code": code, "requests": "x"}
    return CorpusEntry("intent", fields, Path("made_up.toml"))


@pytest.mark.parametrize(
    ("code", "request_text", "decimals", "thought", "written"),
    [
        ("{a} * {b}", "{b} of {a}", False, "This is arithmetic: a * b.", "{b} * {a}"),
        ("round({a} / {b}, 2)", "{b}, {a}", False, "This is arithmetic: a / b.",
         "{a} / {b}"),
        ("{a} * 7 + {b}", "{a} and {b}", False, "This is arithmetic: 7 * a + b.", "7 * {a} + {b}"),
        ("{a} + {b} * {c}", "{c}, {b}, {a}", False, "This is arithmetic: a * b + c.",
         "{c} * {b} + {a}"),
        ("{a} - {b} * {c}", "{c}, {b}, {a}", True, "This is arithmetic: a - b * c.",
         "round({a} - {c} * {b}, 2)"),
        ("{a} * (1 - {b} / 100)", "{a}, {b}", False, "This is arithmetic: a * (100 - b) / 100.",
         "round({a} * (100 - {b}) / 100, 2)"),
        ("{a} + {a} * {b} / 100", "{b}, {a}", False, "This is arithmetic: (100 + a) * b / 100.",
         "round((100 + {b}) * {a} / 100, 2)"),
        ("t = {a} * {b}\nround(t / {c}, 2)", "{a}{b}{c}", False,
         "This is arithmetic: a * b / c.", "round({a} * {b} / {c}, 2)"),
        ("import math\nmath.ceil({a} / {b})", "{a}{b}", False,
         "This is arithmetic, rounded up: a / b.", "import math\nmath.ceil({a} / {b})"),
        ("round(({a} + {b}) / {c}, 2)", "({a}+{b})/{c}=?", False,
         "This is arithmetic: (a + b) / c.", "({a} + {b}) / {c}"),
        ("{a} + {b} + {c}", "sum {a} + {b} + {c}", True, "This is arithmetic: a + b + c.",
         "{a} + {b} + {c}"),
        ("{a} + {b} + {c}", "{b}{c}{a}", True, code_form.LIST_SUM, "round(sum([{b}, {c}, {a}]), 2)"),
    ],
)  # fmt: skip
def test_sum_is_written_in_the_order_of_the_request(
    code: str, request_text: str, decimals: bool, thought: str, written: str
) -> None:
    one = entry(code, **dict.fromkeys(re.findall(r"{(\w)}", code), "int 1 9"))
    assert code_form.form(one, request_text, decimals) == (thought, written)


@pytest.mark.parametrize(
    ("code", "request_text", "shape", "written"),
    [
        ("{previous} - {a}", "less {a}", "{previous} - a", "{previous} - {a}"),
        ("{a} + {previous}", "and {a}", "{previous} + a", "{previous} + {a}"),
        ("{previous} / 2", "half of it", "{previous} / 2", "{previous} / 2"),
    ],
)
def test_follow_up_has_the_result_before_in_its_form(
    code: str, request_text: str, shape: str, written: str
) -> None:
    kinds = dict.fromkeys(set(re.findall(r"{(\w)}", code)), "int 1 9")
    one = replace(entry(code, **kinds), table="follow")
    one.fields["after"] = "number"
    thought = f"This is arithmetic with the previous result: {shape}."
    assert code_form.form(one, request_text, False) == (thought, written)


@pytest.mark.long
def test_entries_with_the_same_code_think_the_same() -> None:
    pairs = {
        (code_form._code(one), one.fields.get("after"), code_form._kinds(one)): set[str]()
        for one in corpus.entries("follow")
    }
    for one in corpus.entries("follow"):
        key = (code_form._code(one), one.fields.get("after"), code_form._kinds(one))
        pairs[key].add(code_form.form(one, one.requests[0], False)[0])
    assert len(pairs) > 150 and all(len(thoughts) == 1 for thoughts in pairs.values())


def test_code_of_every_intent_gives_the_corpus_result() -> None:
    rng = random.Random(4)
    changed = 0
    for one in corpus.entries("intent"):
        request = rng.choice(one.requests)
        values = slots.fill(rng, one.fields.get("slots", {}))
        _, code = code_form.form(one, request, any("." in v.code for v in values.values()))
        if code == one.fields["code"].strip():
            continue
        changed += 1
        results = []
        for text in (one.fields["code"].strip(), code):
            for name, value in values.items():
                text = text.replace(f"{{{name}}}", value.code)
            results.append(ast.literal_eval(corpus.run_code(text)))
        assert results[1] == pytest.approx(results[0], rel=1e-6, abs=0.051), (
            one.fields["name"],
            code,
        )
    assert changed > 150
