"""The constraint of markup in text: calls in tags, answers, and nothing else."""

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agent.engine.grammars import Grammar
from agent.engine.llama.engine import LlamaEngine
from agent.engine.placement.placement import ThreadCounts
from agent.engine.protocol import Constraint, LoopLimits, Request, Sampling
from agent.formats.constraints import GenerationConstraints
from agent.formats.markup.format import MarkupFormat
from agent.formats.protocol import Closed, Delta, Opened, SegmentKind
from agent.formats.recipients import Recipients
from tests.support.engines import read_generation

ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": [1, 2]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
NAMES = ("add", "files__read")


def new_constraint(qwen_format: MarkupFormat, **options: Any) -> Constraint:
    if "answer_grammar" in options:
        answer = Grammar.from_schema(options["answer_grammar"])
        options["answer_grammar"] = qwen_format.grammars.submit(answer)
    arguments = {"add": Grammar.from_argument_schema(ADD)}
    return qwen_format.new_constraint(
        GenerationConstraints(argument_grammars=arguments, **options), Recipients(NAMES)
    )


def constraint_after(qwen_format: MarkupFormat, markup: str, **options: Any) -> Constraint:
    """A constraint that has accepted the markup."""
    constraint = new_constraint(qwen_format, **options)
    for token in qwen_format.encoder.encode_markup(markup):
        assert constraint.accept(token)
    return constraint


def random_ids(qwen_format: MarkupFormat, constraint: Constraint, seed: int) -> list[int]:
    """Random allowed ids until a stop or the limit."""
    draw = random.Random(seed)
    ids: list[int] = []
    while len(ids) < 120 and not (ids and ids[-1] in qwen_format.stop_ids):
        choices = constraint.allowed()
        token = int(choices[draw.randrange(len(choices))])
        assert constraint.accept(token)
        ids.append(token)
    return ids


def test_answer_without_end_is_closed_after_one_reasoning(qwen_format: MarkupFormat) -> None:
    options = {"answer_grammar": {"type": "string"}, "calls": "none"}
    limits = LoopLimits(max_string_tokens=20)
    markup = "Hm.\n</think>\n\n"
    constraint = constraint_after(qwen_format, markup, answer_limits=limits, **options)
    (think,) = qwen_format.encoder.encode_markup("<think>")
    assert not constraint.accept(think)
    draw, written = random.Random(1), list[int]()
    while not (
        stops := qwen_format.stop_ids.intersection(allowed := constraint.allowed().tolist())
    ):
        token = draw.choice(allowed)
        assert constraint.accept(token)
        written.append(token)
    assert stops and len(written) < 40
    text = b"".join(map(qwen_format.token_bytes, written)).decode(errors="replace")
    assert isinstance(json.loads(text, strict=False), str)


OPENED = "Hm.\n</think>\n\n<tool_call>\n"


@pytest.mark.parametrize("seed", range(30))
def test_constrained_call_fits_schema(qwen_format: MarkupFormat, seed: int) -> None:
    constraint = constraint_after(qwen_format, OPENED)
    ids = qwen_format.encoder.encode_markup(OPENED) + random_ids(qwen_format, constraint, seed)
    body, segment = "", None
    for event in qwen_format.parser(Recipients(NAMES)).feed(ids):
        match event:
            case Opened():
                assert segment or event.kind in (SegmentKind.TOOL, SegmentKind.REASONING)
                segment, body = event, ""
            case Delta(text):
                body += text
            case Closed(complete=True) if segment and segment.recipient == "add":
                jsonschema.validate(json.loads(body), ADD)
                return
            case Closed(complete=True) if segment and segment.recipient:
                assert isinstance(json.loads(body), dict)
                return


@pytest.mark.parametrize(
    "markup",
    [
        OPENED + '{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call><|im_end|>',
        OPENED + '{"name":"add","arguments":{"a":1,"b":2}}</tool_call>\n<tool_call>{"name": "add"',
        'Thoughts of <tool_call>{"what": ever}\n</think>\n\nHello <b>there</b>.<|im_end|>',
    ],
)
def test_constraint_accepts_trained_forms(qwen_format: MarkupFormat, markup: str) -> None:
    constraint_after(qwen_format, markup)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (OPENED + '{"name": "ad', "m"),
        (OPENED + '{"name": "add", "arguments": {"a": 1, "b": ', "3"),
        (OPENED + '{"name": "add", "arguments": {"a": 1, "b": 2}}', "<|im_end|>"),
        (OPENED + '{"name": "add", "arguments": {"a": ', "</tool_call>"),
    ],
)
def test_constraint_rejects_misfit(qwen_format: MarkupFormat, before: str, after: str) -> None:
    constraint = constraint_after(qwen_format, before)
    (token,) = qwen_format.encoder.encode_markup(after)
    assert not constraint.accept(token) and token not in constraint.allowed()


@pytest.mark.parametrize("seed", range(20))
def test_constrained_answer_fits_schema(qwen_format: MarkupFormat, seed: int) -> None:
    thought = "Hm.\n</think>\n\n"
    constraint = constraint_after(qwen_format, thought, answer_grammar=ADD)
    ids = qwen_format.encoder.encode_markup(thought) + random_ids(qwen_format, constraint, seed)
    texts: dict[SegmentKind, str] = {}
    for event in qwen_format.parser(Recipients(NAMES)).feed(ids):
        match event:
            case Opened(kind=kind):
                texts[kind] = ""
            case Delta(text):
                texts[kind] += text
    if ids[-1] in qwen_format.stop_ids and SegmentKind.FINAL in texts:
        jsonschema.validate(json.loads(texts[SegmentKind.FINAL]), ADD)
    assert SegmentKind.TOOL_UNKNOWN not in texts


def test_constraint_calls_none_rejects_call(qwen_format: MarkupFormat) -> None:
    constraint = constraint_after(qwen_format, "Hm.\n</think>\n\nHello", calls="none")
    (token,) = qwen_format.encoder.encode_markup("<tool_call>")
    assert not constraint.accept(token) and token not in constraint.allowed()


async def test_random_model_constrained_call_is_valid(
    qwen_format: MarkupFormat, qwen_gguf: Path
) -> None:
    engine = LlamaEngine(qwen_gguf, threads=ThreadCounts(1, 1))
    await engine.load()
    opening = qwen_format.open_call("add")
    constraint = new_constraint(qwen_format)
    for token in opening:
        constraint.accept(token)
    prompt = qwen_format.user_message("Add.") + qwen_format.open_assistant() + opening
    request = Request(prompt, 400, qwen_format.stop_ids, Sampling(seed=1), constraint=constraint)
    output = await read_generation(engine.generate(request))
    await engine.close()
    markup = b"".join(qwen_format.token_bytes(token) for token in output.ids).decode(
        "utf-8", "replace"
    )
    written, closed, _ = markup.partition("</tool_call>")
    if closed:
        jsonschema.validate(json.loads(written.strip().removesuffix("}")), ADD)
    else:
        assert written.startswith("{") and len(output.ids) == 400, "an endless number"
