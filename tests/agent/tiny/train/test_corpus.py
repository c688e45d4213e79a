"""The corpus of requests is sound, and what is made of it says what was asked."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from agent.tiny.train import corpus, corpus_dialogues, data, declared_functions, mixture
from agent.tiny.train.corpus import slots
from agent.tiny.train.dialogues import Talker
from agent.tiny.train.tools import DialogueTool
from tests.support.program import ROOT

KINDS = {"intent": 15_000, "function": 6_000, "decline": 3_000, "odd": 1_500, "described": 1_900}
"""Requests of a table, at least."""


@pytest.mark.long
def test_corpus_check_reports_no_fault() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "agent.tiny.train.corpus"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.strip().endswith("requests, 0 faults")


@pytest.mark.parametrize(("table", "least"), KINDS.items())
def test_corpus_table_is_wide(table: str, least: int) -> None:
    assert sum(len(entry.requests) for entry in corpus.entries(table)) >= least


@pytest.mark.long
def test_corpus_shares_no_request_with_evaluation_lists() -> None:
    requests = {
        " ".join(line.lower().split())
        for table in corpus.TABLES
        for entry in corpus.entries(table)
        for line in entry.requests
    }
    for path in (ROOT / "agent" / "tiny" / "train" / "prompts").glob("strangers_*.json"):
        cases = json.loads(path.read_text())["cases"]
        asked = {
            " ".join(turn["user"].lower().split())
            for case in cases
            if case["kind"] not in ("chat", "odd")  # everybody says hello
            for turn in case["turns"]
        }
        assert len(asked & requests) <= len(asked) // 50


@pytest.mark.parametrize(
    ("marked", "text", "arguments"),
    [
        ("Turn {state=on} the {lamp=desk lamp}.", "Turn on the desk lamp.",
         {"state": "on", "lamp": "desk lamp"}),
        ("{state=off|kill} it", "kill it", {"state": "off"}),
        ("nothing", "nothing", {}),
    ],
)  # fmt: skip
def test_parse_marks_gives_text_and_arguments(
    marked: str, text: str, arguments: dict[str, str]
) -> None:
    request = corpus.parse_marks(marked)
    assert request.text == text and request.arguments(0) == arguments


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [("int 3 9", r"[3-9]"), ("decimal 1 2 2", r"[12]\.\d\d"), ("spelled 21 21", "twenty-one")],
)
def test_slot_value_has_its_form(kind: str, pattern: str) -> None:
    value = slots.value(random.Random(1), kind)
    assert re.fullmatch(pattern, value.text)


def test_run_code_that_never_ends_is_stopped() -> None:
    with pytest.raises(TimeoutError):
        corpus.run_code("while True:\n    pass\n1")


@pytest.mark.long
def test_conversations_calls_fit_their_schemas() -> None:
    """As tokens: every call of a function is JSON of its schema, and every code gives its result."""
    rng = random.Random(11)
    checked = 0
    for _ in range(60):
        prefix = data.make_prefix(rng, "train")
        schemas = {tool.name: tool.schema() for tool in prefix.tools}
        for _ in range(4):
            turns = mixture.conversation(
                rng, "train", prefix.python, prefix.tools, data.clean, data.encode
            )
            for call in (call for turn in turns for call in turn.calls):
                written = data.ConversationWriter()
                data.write_call(written, call)
                text = data.encoding().decode(written.ids)
                body = text.split("<|message|>", 1)[1].split("<|call|>")[0]
                if call.tool is None:
                    assert body == call.code
                    continue
                arguments = {
                    name: value.strip() if isinstance(value, str) else value
                    for name, value in json.loads(body).items()
                }
                Draft202012Validator(schemas[call.tool.name]).validate(arguments)
                checked += 1
    assert checked > 60


def test_chain_takes_the_second_call_from_the_first_result() -> None:
    by_file: dict[str, list[DialogueTool]] = {}
    for entry in corpus.entries("function"):
        tool = declared_functions.function_tool(entry)
        by_file.setdefault(entry.path.name, []).append(tool)
    names = {entry.path.name for entry in corpus.entries("chain")}
    assert names
    for name in names:
        talker = Talker(random.Random(name), "train", False, [], data.clean, data.encode)
        corpus_talker = corpus_dialogues.CorpusTalker(talker, by_file[name])
        for _ in range(50):
            turn = corpus_talker.chain()
            assert turn is not None and turn.thoughts[0].startswith("Two things are asked. First:")
            if len(turn.calls) == 1:
                assert turn.calls[0].result.startswith("error")
                continue
            first, second = turn.calls
            values = dict(
                zip([name for name, _, _ in second.arguments], second.values, strict=True)
            )
            told = [value for value in values.values() if value in first.result]
            assert told, turn.user
            written = data.ConversationWriter()
            data.write_call(written, second)
            assert told[0] in text_of(written.ids)


def text_of(ids: list[int]) -> str:
    return data.encoding().decode(ids)


def test_value_that_is_meant_again_stays() -> None:
    """Of "W-603: 9. W-159: as well." only the orders may change: the second 9 is not written."""
    entries = corpus.requests_of("function", "train")
    tool = next(
        declared_functions.function_tool(entry)
        for entry, _ in entries
        if entry.fields["name"] == "change_order_quantity"
    )
    talker = Talker(random.Random(5), "train", False, [], data.clean, data.encode)
    corpus_talker = corpus_dialogues.CorpusTalker(talker, [tool])
    turns = [turn for _ in range(300) if (turn := corpus_talker.sequence()) is not None]
    tool_names = [param.name for param in tool.params]
    meant_again = [turn for turn in turns if "as well" in turn.user]
    assert meant_again
    for turn in meant_again:
        packs = [dict(zip(tool_names, call.values, strict=True))["packs"] for call in turn.calls]
        assert packs[0] == packs[1]
