"""What a guide of the families with markup holds: calls in tags, answers, and nothing else."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent.engine.grammars import Grammar
from agent.engine.llama.engine import LlamaEngine
from agent.engine.llama.thread_tuning import Threads
from agent.engine.protocol import Constraint, Request, Sampling
from agent.formats.constraints import Rules
from agent.formats.markup.format import MarkupFormat
from agent.formats.protocol import Closed, Delta, Kind, Opened
from agent.formats.recipients import Recipients
from tests.agent.formats.markup.test_format import form, gguf  # noqa: F401
from tests.support.engines import read

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": [1, 2]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
NAMES = ("add", "files__read")


def guide(form: MarkupFormat, **rules: Any) -> Constraint:  # noqa: F811
    if "answer" in rules:
        rules["answer"] = form.grammars.compile(Grammar.of_schema(rules["answer"]))
    arguments = {"add": Grammar.of_arguments(ADD)}
    return form.guide(Rules(arguments=arguments, **rules), Recipients(NAMES))


def held(form: MarkupFormat, markup: str, **rules: Any) -> Constraint:  # noqa: F811
    """A guide that saw the markup, all of which it allows."""
    constraint = guide(form, **rules)
    for token in form.encoder.markup(markup):
        assert constraint.accept(token)
    return constraint


def drawn(form: MarkupFormat, constraint: Constraint, seed: int) -> list[int]:  # noqa: F811
    """What a model says that knows nothing, from what is allowed."""
    draw = random.Random(seed)
    ids: list[int] = []
    while len(ids) < 120 and not (ids and ids[-1] in form.stop):
        choices = constraint.allowed()
        token = int(choices[draw.randrange(len(choices))])
        assert constraint.accept(token)
        ids.append(token)
    return ids


OPENED = "Hm.\n</think>\n\n<tool_call>\n"


@pytest.mark.parametrize("seed", range(30))
def test_a_call_fits_its_tool(form: MarkupFormat, seed: int) -> None:  # noqa: F811
    constraint = held(form, OPENED)
    ids = form.encoder.markup(OPENED) + drawn(form, constraint, seed)
    said, called = "", None
    for piece in form.parser(Recipients(NAMES)).feed(ids):
        match piece:
            case Opened():
                called, said = called or piece, ""
                assert piece is not called or piece.kind in (Kind.TOOL, Kind.REASONING)
                called = piece
            case Delta(text):
                said += text
            case Closed(complete=True) if called and called.recipient == "add":
                jsonschema.validate(json.loads(said), ADD)
                return
            case Closed(complete=True) if called and called.recipient:
                assert isinstance(json.loads(said), dict)
                return


@pytest.mark.parametrize(
    "markup",
    [
        OPENED + '{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>',
        OPENED + '{"name":"add","arguments":{"a":1,"b":2}}</tool_call>\n<tool_call>{"name": "add"',
        'Thoughts of <tool_call>{"what": ever}\n</think>\n\nHello <b>there</b>.<|im_end|>',
    ],
)
def test_what_models_write_passes(form: MarkupFormat, markup: str) -> None:  # noqa: F811
    held(form, markup)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (OPENED + '{"name": "ad', "m"),
        (OPENED + '{"name": "add", "arguments": {"a": 1, "b": ', "3"),
        (OPENED + '{"name": "add", "arguments": {"a": 1, "b": 2}}', "<|im_end|>"),
        (OPENED + '{"name": "add", "arguments": {"a": ', "</tool_call>"),
    ],
)
def test_what_does_not_fit_is_rejected(form: MarkupFormat, before: str, after: str) -> None:  # noqa: F811
    constraint = held(form, before)
    (token,) = form.encoder.markup(after)
    assert not constraint.accept(token) and token not in constraint.allowed()


@pytest.mark.parametrize("seed", range(20))
def test_an_answer_fits(form: MarkupFormat, seed: int) -> None:  # noqa: F811
    thought = "Hm.\n</think>\n\n"
    constraint = held(form, thought, answer=ADD)
    ids = form.encoder.markup(thought) + drawn(form, constraint, seed)
    texts: dict[Kind, str] = {}
    for piece in form.parser(Recipients(NAMES)).feed(ids):
        match piece:
            case Opened(kind=kind):
                texts[kind] = ""
            case Delta(text):
                texts[kind] += text
    if ids[-1] in form.stop and Kind.FINAL in texts:
        jsonschema.validate(json.loads(texts[Kind.FINAL]), ADD)
    assert Kind.TOOL_UNKNOWN not in texts


def test_no_call_where_none_may_be(form: MarkupFormat) -> None:  # noqa: F811
    constraint = held(form, "Hm.\n</think>\n\nHello", calls="none")
    (token,) = form.encoder.markup("<tool_call>")
    assert not constraint.accept(token) and token not in constraint.allowed()


async def test_a_model_that_knows_nothing_calls_well(form: MarkupFormat, gguf: Path) -> None:  # noqa: F811
    engine = LlamaEngine(gguf, threads=Threads(1, 1))
    await engine.load()
    opening = form.open_call("add")
    constraint = guide(form)
    for token in opening:
        constraint.accept(token)
    prompt = form.user("Add.") + form.open_assistant() + opening
    request = Request(prompt, 400, form.stop, Sampling(seed=1), constraint=constraint)
    said = await read(engine.generate(request))
    await engine.close()
    markup = b"".join(form.spelling(token) for token in said.ids).decode("utf-8", "replace")
    written, closed, _ = markup.partition("</tool_call>")
    if closed:
        jsonschema.validate(json.loads(written.strip().removesuffix("}")), ADD)
    else:
        assert written.startswith("{") and len(said.ids) == 400, "an endless number"
