"""Constrained calls of many families: random allowed tokens make calls that fit their schemas."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
import pytest

from agent.engine.grammars import Grammar
from agent.engine.protocol import Constraint, LoopLimits
from agent.formats.constraints import GenerationConstraints, argument_gap
from agent.formats.markup.chat_template import NAMESPACE, ChatTemplate
from agent.formats.markup.default_templates import TEMPLATES
from agent.formats.markup.format import MarkupFormat
from agent.formats.markup.known import SYNTAXES
from agent.formats.markup.syntax import ANY, CallSyntax, MessageSyntax
from agent.formats.markup.vocabulary import ByteVocabulary
from agent.formats.protocol import SegmentKind
from agent.formats.recipients import Recipients
from tests.support.family_parsing import TOOL_KINDS, Reading, read_events

SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "add": {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"enum": [1, 2]},
            "unit": {"type": "string", "enum": ["m", "km/h"]},
            "exact": {"type": "boolean"},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    "files__read": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "integer"}},
            "until": {"type": ["integer", "null"]},
            "options": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "deep": {"type": "boolean"}},
                "required": ["deep"],
                "additionalProperties": False,
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
NAMES = tuple(SCHEMAS)
END = ("<|im_end|>",)


def family(name: str, call: CallSyntax, **more: Any) -> MessageSyntax:
    return MessageSyntax(name, calls=(call,), ends=END, **more)


GLM = CallSyntax(
    "tags", open="<tool_call>", after_name="\n", close="\n</tool_call>",
    key_open="<arg_key>", key_close="</arg_key>\n<arg_value>", value_close="</arg_value>\n",
)  # fmt: skip
GEMMA = CallSyntax(
    "json", open="<|tool_call>call:", close="<tool_call|>", separator="", quote='<|"|>', bare_keys=True
)  # fmt: skip
MISTRAL = CallSyntax("json", open="[TOOL_CALLS]", after_name="[ARGS]", separator="")
NEMO = CallSyntax(
    section_open="[TOOL_CALLS][", section_close="]", separator=", ", other_keys=("id",)
)  # fmt: skip
KIMI = CallSyntax(
    "json", section_open="<|tool_calls_section_begin|>", open="<|tool_call_begin|>functions.",
    after_name=f":{ANY}<|tool_call_argument_begin|>", close="<|tool_call_end|>", separator="",
    section_close="<|tool_calls_section_end|>",
)  # fmt: skip
DSML = CallSyntax(
    "tags", section_open="\n\n<｜DSML｜function_calls>\n", open='<｜DSML｜invoke name="',
    after_name='">\n', key_open='<｜DSML｜parameter name="', key_close=f'" string="{ANY}">',
    value_close="</｜DSML｜parameter>\n", close="\n</｜DSML｜invoke>\n",
    section_close="</｜DSML｜function_calls>", separator="",
)  # fmt: skip
KIMI_K3 = CallSyntax(
    "tags", section_open="<|open|>tools<|sep|>", open='<|open|>call tool="',
    after_name=f'" index="{ANY}"<|sep|>', key_open='<|open|>argument key="',
    key_close=f'" type="{ANY}"<|sep|>', value_close="<|close|>argument<|sep|>",
    close="<|close|>call<|sep|>", section_close="<|close|>tools<|sep|>",
)  # fmt: skip
MINIMAX = CallSyntax(
    "nested", section_open=f"{NAMESPACE}<tool_call>\n", open=f'{NAMESPACE}<invoke name="',
    after_name='">', key_open=f"{NAMESPACE}<{ANY}>", value_close=f"{NAMESPACE}</{ANY}>",
    close=f"{NAMESPACE}</invoke>\n", section_close=f"{NAMESPACE}</tool_call>", separator="",
)  # fmt: skip
MINICPM = CallSyntax(
    "tags", open='<function name="', after_name='">', close="</function>",
    key_open='<param name="', key_close='">', value_close="</param>", wrap=("<![CDATA[", "]]>"),
)  # fmt: skip
LFM = CallSyntax(
    "python", section_open="<|tool_call_start|>[", after_name="(", separator=", ",
    section_close="]<|tool_call_end|>",
)  # fmt: skip
APERTUS = CallSyntax(
    "json", section_open="<|tools_prefix|>[", open='{"', after_name='": ', close="}",
    section_close="]<|tools_suffix|>", separator=", ",
)  # fmt: skip
FAMILIES: Mapping[str, tuple[MessageSyntax, Sequence[str]]] = {
    "qwen3": (SYNTAXES["qwen3"], ("<think>", "</think>", "<tool_call>", "</tool_call>")),
    "qwen3-coder": (SYNTAXES["qwen3-coder"], ("<think>", "</think>", "<tool_call>", "</tool_call>")),
    "llama3": (SYNTAXES["llama3"], ("<|python_tag|>",)),
    "glm": (family("glm", GLM), ("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>",
                                 "</arg_key>", "<arg_value>", "</arg_value>")),
    "gemma4": (
        family("gemma4", GEMMA, think_open="<|channel>thought", think_close="<channel|>"),
        ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'),
    ),
    "mistral": (family("mistral", MISTRAL, think_open="[THINK]", think_close="[/THINK]"),
                ("[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]")),
    "nemo": (family("nemo", NEMO), ("[TOOL_CALLS]",)),
    "kimi-k2": (family("kimi-k2", KIMI), ("<|tool_calls_section_begin|>", "<|tool_call_begin|>",
                "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>")),
    "dsml": (family("dsml", DSML), ("<think>", "</think>", "｜DSML｜")),
    "kimi-k3": (
        family("kimi-k3", KIMI_K3, think_open="<|open|>think<|sep|>",
               think_close="<|close|>think<|sep|>"),
        ("<|open|>", "<|close|>", "<|sep|>"),
    ),
    "minimax-m3": (family("minimax-m3", MINIMAX, think_open="<mm:think>", think_close="</mm:think>"),
                   (NAMESPACE, "<mm:think>", "</mm:think>")),
    "minicpm": (family("minicpm", MINICPM), ("<think>", "</think>")),
    "lfm2": (family("lfm2", LFM), ("<|tool_call_start|>", "<|tool_call_end|>")),
    "apertus": (family("apertus", APERTUS), ("<|tools_prefix|>", "<|tools_suffix|>")),
}  # fmt: skip
"""Each family's syntax, and its special tokens in real vocabularies."""
PIECES = ("\n", "\n\n", '"', '}"', "}}", "}\n", ">\n", "></", "</", "<", "'", ')]', "]]>", "true",
          "add", "now", "12", " km", "/h", "function", "parameter", '":', '", "', "<tool", "_call>",
          "```\n", "ok")  # fmt: skip


class PieceVocabulary(ByteVocabulary):
    """Bytes, special tokens, and ordinary tokens of several bytes, with parts of tags."""

    def __init__(self, specials: Sequence[str], pieces: Sequence[str]) -> None:
        super().__init__(("<|unused|>", *specials))
        self.pieces = range(self.size, self.size + len(pieces))
        self._texts |= dict(zip(self.pieces, (piece.encode() for piece in pieces), strict=True))
        self.size += len(pieces)


def family_format(name: str, *, spelled: bool = False, opens: bool = False) -> MarkupFormat:
    """The format; ``spelled``: its tags are no special tokens; ``opens``: but the first ones tokens."""
    syntax, specials = FAMILIES[name]
    tags = [piece for call in syntax.calls[:1] for piece in
            (call.close, call.value_close, call.section_close, call.key_close, call.after_name,
             call.quote, call.wrap[1] + call.value_close)]  # fmt: skip
    found = {
        tag: None for tag in (*PIECES, *tags, *(t + "\n" for t in tags)) if tag and ANY not in tag
    }
    specials = syntax.ends[:1] if spelled else (*syntax.ends[:1], *specials)
    pieces = [piece for piece in found if not any(special in piece for special in specials)]
    vocabulary = PieceVocabulary(specials, pieces)
    return MarkupFormat(syntax, vocabulary, ChatTemplate(TEMPLATES["qwen3"]))


FORMATS = [(name, spelled) for name in FAMILIES for spelled in (False, True)]


def recipients(names: Sequence[str] = NAMES) -> Recipients:
    return Recipients(names, schemas={name: SCHEMAS[name] for name in names})


def new_constraint(form: MarkupFormat, names: Sequence[str] = NAMES, **options: Any) -> Constraint:
    grammars = {name: Grammar.from_argument_schema(SCHEMAS[name]) for name in names}
    return form.new_constraint(GenerationConstraints(argument_grammars=grammars, **options),
                               recipients(names))  # fmt: skip


def random_ids(form: MarkupFormat, constraint: Constraint, seed: int, most: int = 400) -> list[int]:
    """Random allowed ids until a stop or the limit, most of them not single bytes of text."""
    draw, ids = random.Random(seed), list[int]()
    vocabulary = form._vocabulary
    assert isinstance(vocabulary, PieceVocabulary)
    while len(ids) < most and not (ids and ids[-1] in form.stop_ids):
        choices = constraint.allowed().tolist()
        likely = [token for token in choices if token > 255]
        if likely and draw.random() < 0.8:
            choices = likely
        choices = [c for c in choices if c not in (9, 32)] or choices
        token = draw.choice(choices)
        assert constraint.accept(token), (form.token_bytes(token), written(form, ids))
        ids.append(token)
    return ids


def written(form: MarkupFormat, ids: Sequence[int]) -> str:
    return b"".join(map(form.token_bytes, ids)).decode(errors="replace")


def read(form: MarkupFormat, ids: Sequence[int]) -> Reading:
    parser = form.parser(recipients())
    return read_events([*parser.feed(ids), *parser.finish()])


def check_calls(reading: Reading) -> int:
    """Check the complete calls; return how many there are."""
    calls = [segment for segment in reading.segments if segment.kind in TOOL_KINDS]
    complete = [call for call in calls if call.complete]
    for call in complete:
        assert call.kind is SegmentKind.TOOL and call.name in SCHEMAS, call
        jsonschema.validate(json.loads(call.text, strict=False), SCHEMAS[call.name])
    return len(complete)


EVERY = pytest.mark.parametrize(("name", "spelled"), FORMATS)


@pytest.mark.sampled(6)
@EVERY
def test_required_call_fits_schema(name: str, spelled: bool) -> None:
    form, count = family_format(name, spelled=spelled), 0
    for seed in range(20):
        ids = random_ids(form, new_constraint(form, calls="must", reasoning_until=0), seed)
        if ids[-1] in form.stop_ids:
            calls = check_calls(read(form, ids))
            assert calls, written(form, ids)
            count += calls
    assert count > 5


@EVERY
def test_named_tool_is_called(name: str, spelled: bool) -> None:
    form = family_format(name, spelled=spelled)
    for seed in range(5):
        constraint = new_constraint(form, ["add"], calls="must", reasoning_until=0)
        ids = random_ids(form, constraint, seed)
        calls = [s for s in read(form, ids).segments if s.kind in TOOL_KINDS and s.complete]
        assert {call.name for call in calls} == {"add"} or ids[-1] not in form.stop_ids


@EVERY
def test_no_call_is_written_where_none_may_be(name: str, spelled: bool) -> None:
    form = family_format(name, spelled=spelled, opens=True)
    for seed in range(10):
        ids = random_ids(form, new_constraint(form, [], calls="none"), seed, 200)
        reading = read(form, ids)
        assert not reading.calls, written(form, ids)


ARGUMENTS = {
    "add": {"a": -5, "b": 2, "unit": "km/h"},
    "now": {},
    "files__read": {"path": "a 'b'\n(c)", "lines": [1, 2], "options": {"deep": True}},
}


@EVERY
@pytest.mark.parametrize("tool", ARGUMENTS)
def test_trained_call_is_accepted_between_words(name: str, spelled: bool, tool: str) -> None:
    """A call as the family's template writes it, after words and before the end."""
    form = family_format(name, spelled=spelled)
    # Gemma's template sorts the keys.
    arguments = json.dumps(ARGUMENTS[tool], sort_keys=name == "gemma4")
    call = FAMILIES[name][0].calls[0].encode(form.encoder, tool, arguments)
    before, stop = form.encode_markup("I look <b>it</b> up:\n\n"), min(form.stop_ids)
    constraint = new_constraint(form)
    for at, token in enumerate(ids := [*before, *call, stop]):
        assert constraint.accept(token), written(form, ids[: at + 1])
    (found,) = read(form, ids).calls
    assert found.complete and found.name == tool
    assert json.loads(found.text) == ARGUMENTS[tool]
    begun = new_constraint(form)
    assert all(map(begun.accept, [*before, *call[: len(call) * 3 // 4]]))
    assert tool == "now" or not begun.accept(stop)


@EVERY
def test_undeclared_tool_cannot_be_named(name: str, spelled: bool) -> None:
    form, syntax = family_format(name, spelled=spelled), FAMILIES[name][0]
    call = syntax.calls[0].encode(form.encoder, "other", "{}")
    constraint = new_constraint(form, calls="must")
    refused = next((token for token in call if not constraint.accept(token)), None)
    assert refused is not None and refused not in constraint.allowed()


@EVERY
def test_answer_of_a_schema_follows_reasoning(name: str, spelled: bool) -> None:
    form, syntax = family_format(name, spelled=spelled), FAMILIES[name][0]
    answer = form.grammars.submit(Grammar.from_answer_schema(SCHEMAS["add"]))
    for seed in range(10):
        constraint = new_constraint(form, [], calls="none", answer_grammar=answer)
        thought = form.encode_markup(f"{syntax.think}\nHm {{\n{syntax.think_end}")
        assert all(map(constraint.accept, thought))
        ids = thought + random_ids(form, constraint, seed)
        if ids[-1] in form.stop_ids:
            reasoning, final = (s for s in read(form, ids).segments if s.text.strip())
            assert reasoning.kind is SegmentKind.REASONING and final.kind is SegmentKind.FINAL
            jsonschema.validate(json.loads(final.text), SCHEMAS["add"])


def test_reasoning_may_precede_a_required_call_but_not_its_end() -> None:
    form = family_format("glm")
    constraint = new_constraint(form, calls="must")
    thought = form.encode_markup("<think>Is it <tool_call>x? No.")
    assert all(map(constraint.accept, thought))
    (stop,) = form.stop_ids
    assert not constraint.accept(stop) and stop not in constraint.allowed()
    assert all(map(constraint.accept, form.encode_markup("</think>\n<tool_call>now\n</tool_call>")))
    assert constraint.accept(stop)


def test_no_reasoning_begins_after_its_limit() -> None:
    form = family_format("glm")
    (think,) = form.encode_markup("<think>")
    for options in ({"calls": "must"}, {"calls": "may"}):
        assert think in new_constraint(form, **options).allowed()
        constraint = new_constraint(form, **options, reasoning_until=0)
        assert not constraint.accept(think) and think not in constraint.allowed()


def test_json_answer_of_llama_is_no_call() -> None:
    form = family_format("llama3")
    texts = ('{"name": "Ann", "age": 3}', '{"name": "add", "parameters": {"a": 1, "b": 2}}')
    for text in texts:
        constraint = new_constraint(form)
        assert all(map(constraint.accept, form.encode_markup(text)))
        assert constraint.accept(min(form.stop_ids))
    constraint = new_constraint(form)
    begun = form.encode_markup('{"name": "add", "parameters": {"a": 1, "b": ')
    assert all(map(constraint.accept, begun)) and not constraint.accept(ord("7"))


def test_quoted_tag_is_text() -> None:
    form = family_format("qwen3-coder", spelled=True)
    constraint = new_constraint(form)
    text = form.encode_markup("Models write `<tool_call>` or `<function=`.")
    assert all(map(constraint.accept, [*text, *form.stop_ids][: len(text) + 1]))


UNUSUAL: Mapping[str, Mapping[str, Any]] = {
    "we-ird.name": {
        "type": "object",
        "properties": {
            "key with space": {"type": "string", "enum": ['ä"b', ""]},
            "": {"type": "number", "minimum": 1.5},
            "none": {"const": None},
            "any": {},
            "all": True,
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    },
    "nested": {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/Node"}},
        "$defs": {
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "n": {}}}
        },
    },
    "open": {"type": "object", "additionalProperties": True},
    "pattern": {
        "type": "object",
        "properties": {"list": {"type": "array", "items": {"pattern": "(?<=x)"}}},
        "required": ["other"],
    },
}


@EVERY
def test_unusual_schemas_have_a_grammar(name: str, spelled: bool) -> None:
    form = family_format(name, spelled=spelled)
    grammars = {tool: Grammar.from_argument_schema(schema) for tool, schema in UNUSUAL.items()}
    constraints = GenerationConstraints("must", grammars)
    for tool in UNUSUAL:
        constraint = form.new_constraint(constraints, Recipients(UNUSUAL))
        call = FAMILIES[name][0].calls[0].encode(form.encoder, tool, None)
        assert all(map(constraint.accept, call)), tool


def test_limit_of_strings_holds_for_answers_but_not_for_calls() -> None:
    form = family_format("qwen3-coder")
    answer = form.grammars.submit(Grammar.from_answer_schema(SCHEMAS["files__read"]))
    options = {"answer_grammar": answer, "answer_limits": LoopLimits(max_string_tokens=20)}
    begun = '<tool_call>\n<function=files__read>\n<parameter=path>\n"'
    for text, may_continue in (('{"path": "', False), (begun, True)):
        constraint = new_constraint(form, **options)
        assert all(map(constraint.accept, form.encode_markup(text + "ab" * 10)))
        assert all(map(constraint.accept, form.encode_text("cd"))) == may_continue


@pytest.mark.parametrize(("calls", "reasoning"), [("must", None), ("must", 0), ("may", 0)])
def test_prompt_that_begins_reasoning(calls: str, reasoning: int | None) -> None:
    """Reasoning that the prompt opened ends by its tag, at once where none is left."""
    syntax, specials = FAMILIES["glm"]
    template = re.sub(
        r"assistant(\\n|\n)(?=\" }}{% endif)", r"assistant\1<think>\1", TEMPLATES["qwen3"]
    )
    vocabulary = PieceVocabulary((*syntax.ends, *specials), PIECES)
    form = MarkupFormat(syntax, vocabulary, ChatTemplate(template))
    constraint = new_constraint(form, calls=calls, reasoning_until=reasoning)
    thought = [] if reasoning == 0 else form.encode_markup("Now.")
    end, (stop,) = form.encode_markup("\n</think>\n"), form.stop_ids
    assert reasoning is None or ord("N") not in constraint.allowed()
    assert all(map(constraint.accept, [*thought, *end]))
    assert constraint.accept(stop) == (calls == "may")


def test_first_special_token_does_not_end_the_text() -> None:
    """It stands for llguidance's end of the text."""
    form = family_format("glm")
    constraint, unused = new_constraint(form), min(form._special_ids)
    assert constraint.accept(ord("a")) and not constraint.accept(unused)
    assert unused not in constraint.allowed() and constraint.accept(ord("b"))


@pytest.mark.parametrize("name", FAMILIES)
def test_gap_of_a_schema_is_known(name: str) -> None:
    form = family_format(name)
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)"}}}
    grammar = Grammar.from_argument_schema(schema)
    constraints = GenerationConstraints(argument_grammars={"f": grammar})
    form.new_constraint(constraints, Recipients(["f"])).allowed()
    assert argument_gap(form.grammars, grammar)
