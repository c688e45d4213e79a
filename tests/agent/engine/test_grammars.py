"""Grammars are compiled once, but for a shortage of this machine, and what may explode in a child."""

import json
from typing import Any

import pytest

from agent.engine import grammars
from agent.engine.grammars import Grammar, GrammarCompiler, GrammarError, TokenBytes
from agent.engine.protocol import EngineBusyError


@pytest.fixture
def compiler() -> GrammarCompiler:
    tokens = [bytes([byte]) for byte in range(256)]
    return GrammarCompiler(lambda: TokenBytes([*tokens, b"<|end|>"], frozenset([256])))


@pytest.mark.parametrize("shortage", [OSError(24, "Too many open files"), TimeoutError("slow")])
def test_shortage_is_not_remembered(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch, shortage: OSError
) -> None:
    grammar = Grammar("lark", 'start: "a" | "b"')

    def fail(lark: str) -> None:
        raise shortage

    with monkeypatch.context() as short:
        short.setattr(grammars, "check_grammar", fail)
        with pytest.raises(EngineBusyError, match="try again later"):
            compiler.submit(grammar).result()
    assert compiler.submit(grammar).result()


def test_verdict_is_remembered(compiler: GrammarCompiler) -> None:
    grammar = Grammar("lark", "start: nothing")
    first = compiler.submit(grammar)
    with pytest.raises(GrammarError):
        first.result()
    assert compiler.submit(grammar) is first


def chain(keyword: str, count: int) -> str:
    """A schema whose patterns llguidance intersects, each through a union or a reference."""
    schema: dict[str, Any] = {"type": "string", "pattern": "^[ab]*$"}
    for number in range(count):
        pattern = {"type": "string", "pattern": f"^[ab{number}]*$"}
        schema = {**pattern, keyword: [schema]}
    return json.dumps({"type": "object", "properties": {"a": schema}, "required": ["a"]})


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_schema_that_may_explode_is_checked_in_a_child(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch, keyword: str
) -> None:
    checked: list[str] = []

    def check(lark: str) -> str:
        checked.append(lark)
        return "it takes more than 1 s"

    monkeypatch.setattr(grammars, "check_grammar", check)
    compiled = compiler.submit(Grammar("json", chain(keyword, 12))).result()
    assert checked and "more than 1 s" in (compiled.unenforced or "")
    checked.clear()
    compiler.submit(Grammar("json", chain(keyword, 3))).result()
    assert not checked
