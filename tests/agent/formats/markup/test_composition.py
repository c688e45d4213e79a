"""Histories composed of frames, as a conversation grows, against the template's own rendering."""

import json
import re
from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from agent.conversation.conversation import Conversation, Span, next_format
from agent.conversation.messages import (
    Assistant,
    Developer,
    ReasoningMessage,
    ToolCallMessage,
    ToolResultMessage,
    User,
)
from agent.formats.detect import find_syntax
from agent.formats.markup.chat_template import ChatTemplate, KnownTemplate
from agent.formats.markup.format import MarkupFormat
from agent.formats.markup.template_process import UnusableTemplateError
from agent.formats.markup.vocabulary import ByteVocabulary
from agent.formats.protocol import Closed, Format, FunctionTool, Opened, PromptHeader, SegmentKind
from agent.formats.recipients import Recipients
from agent.util.prefix import common_prefix_length
from tests.support.chat_templates import SOURCES, TOOLS, call, message, result

DAY = date(2026, 11, 21)
FUNCTIONS = tuple(
    FunctionTool(each["name"], each["description"], each["parameters"])
    for each in (tool["function"] for tool in TOOLS)
)
CALL = [call(0, "weather", {"city": "CITY"})]
TWO_CALLS = [*CALL, call(1, "clock", {"city": "TOWN"})]
SYSTEM = message("system", "Be brief.")


def question(text: str) -> dict[str, Any]:
    return message("user", text)


def answered(text: str, thought: str, **more: Any) -> dict[str, Any]:
    return message("assistant", text, reasoning_content=thought, thinking=thought, **more)


HISTORIES: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "turns": (
        [
            *(SYSTEM, question("QA"), answered("AA", "thought TA"), question("QB")),
            *(answered("AB", "thought TB"), question("QC")),
        ],
        False,
    ),
    "call": (
        [
            *(SYSTEM, question("QA"), answered("", "thought TA", tool_calls=CALL)),
            result(0, "weather", "RA"),
        ],
        True,
    ),
    "two calls": (
        [
            *(SYSTEM, question("QA"), answered("", "thought TA", tool_calls=TWO_CALLS)),
            *(result(0, "weather", "RA"), result(1, "clock", "RB")),
        ],
        True,
    ),
    "loop": (
        [
            *(SYSTEM, question("QA"), answered("", "thought TA", tool_calls=CALL)),
            *(result(0, "weather", "RA"), answered("AA", "thought TB"), question("QB")),
        ],
        True,
    ),
    "instructions": (
        [
            *(SYSTEM, question("QA"), answered("AA", "thought TA")),
            *(message("system", "DEV"), question("QB")),
        ],
        False,
    ),
}  # fmt: skip


def new_format(source: str) -> MarkupFormat:
    """A format whose vocabulary has the tags of the template's frames."""
    template = ChatTemplate(source, KnownTemplate(source), begin="<bos>", end="<eos>")
    frames, syntax = template.frames, find_syntax(source, template)
    texts = [frames.user.before, frames.assistant.after, frames.results.call_end]
    tags = [re.findall(r"<[^<>\s]+>|\[e~\[", text) for text in texts]
    specials = [*syntax.specials, *(tag for found in tags for tag in found)]
    vocabulary = ByteVocabulary(dict.fromkeys(specials))
    vocabulary.end_ids = frozenset(
        vocabulary.specials[tag] for found in tags[1:] for tag in found[-1:]
    )
    return MarkupFormat(syntax, vocabulary, template)


def generated(
    form: MarkupFormat, history: Sequence[dict[str, Any]], answer: dict[str, Any], tools: Any
) -> list[int]:
    """What a model that writes as the template does writes for a message, up to its stop token."""
    template = form.template

    def render(messages: Sequence[dict[str, Any]], *, generate: bool = False) -> str:
        return template.render(messages, tools, DAY, generate=generate)

    thought, text = answer["reasoning_content"], answer["content"]
    opening = template.opening("medium", after_result=history[-1]["role"] == "tool")
    prompt, rendered = render(history, generate=True), render([*history, answer])
    before = prompt[: len(prompt) - len(opening.prompt)] + opening.header
    if not rendered.startswith(before):
        raise ValueError("the prompt is not the beginning of the history")
    written = rendered[len(before) :]
    if text:
        written = written[: written.index(text) + len(text)] + template.frames.assistant.after
    else:
        following = render([*history, answer, result(0, "weather", "RA")])[len(before) :]
        written = common(written, following)
    if thought not in written:
        # The template drops even this reasoning: the model wrote one nevertheless.
        begin, end, rest = opening.before_answer.rpartition("</think>")
        opened = opening.prompt[len(opening.header) :]
        written = written.removeprefix(begin + end + rest if end else opened)
        if opened and not end:
            end = "</think>"
        if end:
            written = f"{opened or begin}{thought}{end}{rest}{written}"
    ids = form.encode_markup(written.removeprefix(opening.prompt[len(opening.header) :]))
    stops = [at for at, token in enumerate(ids) if token in form.stop_ids]
    end = form.message_end() if text and not stops else []
    return ids[: stops[-1] + 1] if stops else ids[: len(ids) - len(end)]


def parse(form: Format, ids: Sequence[int]) -> list[Span]:
    spans, kind = [], SegmentKind.FINAL
    parser = form.parser(Recipients(["weather", "clock"]))
    for event in [*parser.feed(ids), *parser.finish()]:
        if isinstance(event, Opened):
            kind = event.kind
        elif isinstance(event, Closed):
            spans.append(Span(event.start, event.end, kind, event.complete, "item"))
    return spans


def compose(
    form: MarkupFormat, history: list[dict[str, Any]], tools: bool, *, imported: bool = False
) -> str:
    """Compose a history as a conversation grows or, ``imported``, as a client sends it."""
    conversation = Conversation("c")
    instructions = history[0]["content"]
    functions = FUNCTIONS if tools else ()
    conversation.set_header(
        form, PromptHeader(DAY.isoformat(), instructions=instructions, functions=functions)
    )
    for at, each in enumerate(history[1:], 1):
        match each["role"]:
            case "system":
                conversation.add(form, Developer(each["content"]))
            case "user":
                conversation.end_turn(form)
                conversation.add(form, User(each["content"]))
            case "tool" if imported:
                conversation.add(form, ToolResultMessage(each["name"], each["content"]))
            case "tool":
                conversation.add_result(form, each["name"], each["content"])
            case _ if imported:
                conversation.add(form, ReasoningMessage(each["reasoning_content"]))
                if each["content"]:
                    conversation.add(form, Assistant(each["content"]))
                for made in each.get("tool_calls", []):
                    function = made["function"]
                    arguments = json.dumps(function["arguments"])
                    conversation.add(form, ToolCallMessage(function["name"], arguments))
            case _:
                ids = generated(form, history[:at], each, TOOLS if tools else [])
                spans = parse(next_format(form, conversation.entries), ids)
                conversation.add_generated(form, ids, spans)
    ids = conversation.prompt(form)
    return b"".join(form.token_bytes(token) for token in ids).decode()


def common(first: str, second: str) -> str:
    return first[: common_prefix_length(first, second)]


def difference(composed: str, rendered: str) -> tuple[str, str]:
    """The middle in which two texts differ."""
    begin = len(common(composed, rendered))
    end = len(common(composed[begin:][::-1], rendered[begin:][::-1]))
    return composed[begin : len(composed) - end], rendered[begin : len(rendered) - end]


def known_differences() -> dict[tuple[str, str], str]:
    """Why some histories differ, by the template's name and the history."""
    loop, calls = ("call", "two calls", "loop"), ("call", "two calls")
    known: dict[tuple[str, str], str] = {}

    def differ(why: str, histories: Sequence[str], *names: str) -> None:
        known.update({(name, history): why for name in names for history in histories})

    differ(
        "it leaves later instructions out; here a user message has them",
        ["instructions"],
        *("Bielik-11B-v3.0-Instruct", "HuggingFaceTB-SmolLM3-3B", "MiniMax-M1", "MiniMax-M2"),
        *("MiniMax-M3", "NVIDIA-Nemotron-Nano-v2", "Reka-Edge", "openai-gpt-oss-120b"),
    )
    differ(
        "it moves later instructions before the first message, which has been read",
        ["instructions"],
        *("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
        *("deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2", "deepseek-ai-DeepSeek-V4"),
        *("deepseek-ai-DeepSeek-V4-Flash-0731", "llama-cpp-deepseek-r1", "llama-cpp-rwkv-world"),
        *("tencent-Hy3", "upstage-Solar-Open-100B"),
    )
    differ(
        "it knows no tools; here the instructions declare them",
        loop,
        *("HuggingFaceTB-SmolLM3-3B", "deepseek-ai-DeepSeek-V3.1", "llama-cpp-rwkv-world"),
        *("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
        "microsoft-Phi-3.5-mini-instruct",
    )
    differ(
        "it drops reasoning between calls, which has been read; here it stays until the turn ends",
        calls,
        *("Apriel-1.6-15b-Thinker-fixed", "NVIDIA-Nemotron-Nano-v2", "Qwen-QwQ-32B"),
        "llama-cpp-deepseek-r1",
    )
    apertus = "Apertus-8B-Instruct"
    nemo, small = "mistralai-Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506"
    differ("it moves instructions and tools to the last user message", ("turns", *loop), nemo)
    differ("it moves tools to the last user message", ["loop"], small)
    differ("it writes the last calls without ids", loop, "unsloth-Apriel-1.5")
    differ("it leaves calls out", loop, "LFM2-8B-A1B", "ibm-granite-granite-3.3-2B-Instruct")
    differ("it leaves calls out, which cannot be parsed then", loop, "LFM2.5-Instruct")
    differ("it prompts for a message after a result, and continues one", ["loop"], apertus)
    differ("it writes the last calls without ids", ["loop"], "Apriel-1.6-15b-Thinker-fixed")
    hermes = "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"
    differ("it ends the last results otherwise", ["loop"], hermes)
    hermes = "NousResearch-Hermes-3-Llama-3.1-8B-tool_use"
    differ("it ends the last results otherwise", ["loop"], hermes)
    differ("it keeps the reasoning of one earlier turn", ["turns", "loop"], "Kimi-K2-Thinking")
    kept = "CohereForAI-c4ai-command-r7b-12-2024-tool_use"
    differ("it keeps the reasoning of calls only", ["loop"], kept)
    closing = "CohereForAI-c4ai-command-r-plus-tool_use"
    differ("it closes every prompt with instructions, which have been read", HISTORIES, closing)
    differ(
        "it confuses results where there are instructions",
        ["two calls", "loop"],
        "Bielik-11B-v3.0-Instruct",
    )
    differ("Harmony has a format of its own", ["two calls", "loop"], "openai-gpt-oss-120b")
    differ("Harmony has a format of its own", ["turns"], "openai-gpt-oss-120b")
    return known


KNOWN = known_differences()


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("name", SOURCES)
def test_composed_history_equals_real_template(name: str, history: str) -> None:
    form = new_format(SOURCES[name])
    messages, tools = HISTORIES[history]
    try:
        rendered = form.template.render(messages, TOOLS if tools else [], DAY, generate=True)
    except UnusableTemplateError as error:
        pytest.skip(f"the template refuses this history: {error}")
    if (name, history) not in KNOWN:
        assert difference(compose(form, messages, tools), rendered) == ("", "")
        return
    try:
        composed = compose(form, messages, tools)
    except ValueError:
        return
    assert composed != rendered, f"no more true: {KNOWN[name, history]}"


BEGINNING = (
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% set last = namespace(at=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set last.at = loop.index0 %}{% endif %}"
    "{% endfor %}{% for m in messages %}{% set turn = loop.index0 > last.at %}"
)
CALLS = "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}"
RESULT = "<|tool|>{{ m.name }}: {{ m.content }}<|end|>\n"
PROMPT = "{% if add_generation_prompt %}<|assistant|>%OPENING%{% endif %}"
FAMILY = (
    BEGINNING
    + "{% if m.role == 'tool' %}%RESULT%{% else %}<|{{ m.role }}|>"
    + "{% if m.role == 'assistant' %}%REASONING%{% endif %}{{ m.content }}%CALLS%"
    + "{% if m.tool_calls %}%CALLEND%{% else %}<|end|>\n{% endif %}{% endif %}{% endfor %}"
    + PROMPT
)


def family(**parts: str) -> str:
    """A small template; each part is in place of a word in capitals."""
    defaults = {
        "REASONING": "{% if turn %}<think>\n{{ m.reasoning_content }}\n</think>\n{% endif %}",
        "RESULT": RESULT,
        "CALLS": CALLS,
        "CALLEND": "<|end|>\n",
        "OPENING": "<think>\n",
    }
    source = FAMILY
    for name, text in (defaults | parts).items():
        source = source.replace(f"%{name}%", text)
    return source


THOUGHT = "<think>{{ m.reasoning_content }}</think>"
FAMILIES = {
    "reasoning dropped": family(),
    "empty thought": family(
        REASONING=f"{{% if turn %}}{THOUGHT}{{% else %}}<think></think>{{% endif %}}", OPENING=""
    ),
    "end of a thought": family(
        REASONING=f"{{% if turn %}}{THOUGHT}{{% else %}}</think>{{% endif %}}", OPENING="<think>"
    ),
    "reasoning kept": family(REASONING=THOUGHT, OPENING="<think>"),
    "reasoning kept with tools": family(
        REASONING=f"{{% if turn or tools %}}{THOUGHT}{{% endif %}}", OPENING="<think>"
    ),
    "calls end otherwise": family(CALLEND="<|calls|>"),
    "calls in a list": family(
        CALLS="{% if m.tool_calls %}<calls>[{% for c in m.tool_calls %}{{ c.function | tojson }}"
        "{{ ', ' if not loop.last }}{% endfor %}]</calls>{% endif %}"
    ),
    "results continue the message": family(
        CALLEND="{% if loop.last %}<|result|>{% endif %}", RESULT="<|result|>{{ m.content }}<|/result|>"
    ).replace(
        "<|{{ m.role }}|>{% if", "{% if loop.index0 and messages[loop.index0 - 1].role == 'tool' and"
        " m.role == 'assistant' %}{% else %}<|{{ m.role }}|>{% endif %}{% if",
    ).replace("add_generation_prompt", "add_generation_prompt and messages[-1].role != 'tool'"),
    "numbered results": family(
        CALLEND="{% set last.call = loop.index %}<|end|>\n",
        RESULT="<|tool|>{{ loop.index0 - last.call }}:{{ m.content }}<|end|>\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("name", FAMILIES)
def test_composed_history_equals_template(name: str, history: str) -> None:
    form = new_format(FAMILIES[name])
    messages, tools = HISTORIES[history]
    rendered = form.template.render(messages, TOOLS if tools else [], DAY, generate=True)
    assert difference(compose(form, messages, tools), rendered) == ("", "")


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("name", FAMILIES)
def test_imported_history_equals_template(name: str, history: str) -> None:
    form = new_format(FAMILIES[name])
    messages, tools = HISTORIES[history]
    rendered = form.template.render(messages, TOOLS if tools else [], DAY, generate=True)
    assert difference(compose(form, messages, tools, imported=True), rendered) == ("", "")


IMPORTED_OTHERWISE = {
    "numbers calls": {
        *("Cohere2MoE", "CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Kimi-K2-Instruct"),
        *("Kimi-K2-Thinking", "Kimi-K3", "Mistral-Small-3.2-24B-Instruct-2506"),
        *("moonshotai-Kimi-K2", "upstage-Solar-Open-100B"),
    },
    "has white space or brackets of its own around calls or reasoning": {
        *("Bielik-11B-v3.0-Instruct", "GLM-4.6", "GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B"),
        *("LFM2.5-8B-A1B", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "NVIDIA-Nemotron-Nano-v2"),
        *("Reka-Edge", "StepFun3.5-Flash"),
    },
    "has a header for each part": {"muse-glimmer", "openai-gpt-oss-120b"},
}
"""Real templates by what is not imported exactly."""


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("name", SOURCES)
def test_imported_history_equals_real_template(name: str, history: str) -> None:
    if (name, history) in KNOWN or any(name in names for names in IMPORTED_OTHERWISE.values()):
        pytest.skip("it differs")
    form = new_format(SOURCES[name])
    messages, tools = HISTORIES[history]
    try:
        rendered = form.template.render(messages, TOOLS if tools else [], DAY, generate=True)
    except UnusableTemplateError as error:
        pytest.skip(f"the template refuses this history: {error}")
    assert difference(compose(form, messages, tools, imported=True), rendered) == ("", "")
