"""Chat templates: rendered as Hugging Face's transformers does, and the frames derived from them."""

from datetime import date
from typing import Any

import pytest

from agent.formats.markup.chat_template import EFFORTS as EFFORT_LEVELS
from agent.formats.markup.chat_template import ChatTemplate, KnownTemplate, Opening
from agent.formats.markup.default_templates import TEMPLATES
from agent.formats.markup.format import MarkupFormat
from agent.formats.markup.known import SYNTAXES
from agent.formats.markup.template_child import TEMPLATE_ERRORS, compile_template, render_template
from agent.formats.markup.template_process import UnusableTemplateError
from agent.formats.markup.vocabulary import ByteVocabulary
from agent.formats.protocol import PromptHeader
from tests.support.chat_templates import SOURCES, TOOLS, call, message, render_reference, result

DAY = date(2026, 11, 21)
CALLS = [call(1, "weather", {"city": "Köln"}), call(2, "clock", {"city": "Rome"})]
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "question": [message("user", "Hi")],
    "system": [message("system", "Be brief."), message("user", "Hi")],
    "history": [
        message("system", "Be brief."),
        message("user", "Hi"),
        message("assistant", "Hello.", reasoning_content="Greet."),
        message("user", "Bye"),
    ],
    "calls": [
        message("user", "Hi"),
        message("assistant", "", reasoning_content="Look.", tool_calls=CALLS),
        result(1, "weather", "-3 °C"),
        result(2, "clock", "noon"),
        message("assistant", "Cold.", reasoning_content="So."),
        message("user", "Bye"),
    ],
}


def render(source: str, messages: Any, tools: Any = None, generate: bool = False) -> str:
    template = compile_template(source)
    variables = {"enable_thinking": True}
    return render_template(
        template, messages, tools, DAY.isoformat(), generate, "<bos>", "<eos>", variables
    )


# --- rendering --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOURCES)
def test_real_template_renders_as_in_transformers(name: str) -> None:
    for messages in CONVERSATIONS.values():
        for tools in (None, TOOLS):
            for generate in (False, True):
                variables: dict[str, Any] = {
                    "enable_thinking": True,
                    "tools_in_user_message": False,
                    "date_string": DAY.strftime("%d %b %Y"),
                }
                try:
                    expected = render_reference(
                        SOURCES[name],
                        messages,
                        tools,
                        DAY,
                        add_generation_prompt=generate,
                        bos_token="<bos>",
                        eos_token="<eos>",
                        **variables,
                    )
                except TEMPLATE_ERRORS:
                    continue
                assert render(SOURCES[name], messages, tools, generate) == expected


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a {%- generation -%} b {{ messages[0].role }}\n{%- endgeneration %}\nc", "ab userc"),
        ("{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}", "1"),
        ("{{ {'b': 'ä', 'a': [1]} | tojson }}", '{"b": "ä", "a": [1]}'),
        ("{{ {'b': 'ä', 'a': 1} | tojson(true, sort_keys=true) }}", '{"a": 1, "b": "\\u00e4"}'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "1"),
        ("{{ strftime_now('%Y') }}{{ documents }}{{ bos_token }}{{ eos_token }}", "2026None<bos><eos>"),
    ],
)  # fmt: skip
def test_template_renders_as_in_transformers(source: str, text: str) -> None:
    messages = CONVERSATIONS["question"]
    variables = {"bos_token": "<bos>", "eos_token": "<eos>"}
    assert render_reference(source, messages, None, DAY, **variables) == text
    assert render(source, messages) == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% set a = [] %}{{ a.append(1) or a }}", "[1]"),
        ("{{ messages.append(messages[0]) or messages | length }}", "2"),
        ("{{ messages | map(attribute='role') | tojson }}", '["user"]'),
    ],
)
def test_template_renders_what_transformers_refuses(source: str, text: str) -> None:
    with pytest.raises(TEMPLATE_ERRORS):
        render_reference(source, CONVERSATIONS["question"], None, DAY)
    assert render(source, [message("user", "Hi")]) == text


def test_template_gets_functions_and_date_as_text() -> None:
    source = "{{ functions + datetime }}"
    assert render(source, [message("user", "Hi")]) == "[]2026-11-21"
    assert '"name": "weather"' in render(source, [message("user", "Hi")], TOOLS)


# --- frames -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOURCES)
def test_real_template_has_frames(name: str) -> None:
    template = ChatTemplate(SOURCES[name], KnownTemplate(SOURCES[name]), begin="<bos>", end="<eos>")
    user = template.frames.user
    assert user.before + user.after and template.frames.assistant.after is not None


CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}%END%{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ENDS = {
    "the same": CHATML.replace("%END%", "<|end|>\n"),
    "none after the last answer": CHATML.replace(
        "%END%", "{% if m.role != 'assistant' or not loop.last %}<|end|>\n{% endif %}"
    ),
    "more after the last": CHATML.replace("%END%", "<|end|>\n")
    + "{% if not add_generation_prompt %}<eos>{% endif %}",
}


@pytest.mark.long
@pytest.mark.parametrize("name", ENDS)
def test_message_ends_otherwise_in_the_last_message(name: str) -> None:
    frames = ChatTemplate(ENDS[name]).frames
    assert (frames.assistant.before, frames.assistant.after) == ("<|assistant|>", "<|end|>\n")
    assert frames.user.before == "<|user|>" and frames.message_header == "<|assistant|>"
    assert frames.user.after + frames.generation_prompt == "<|end|>\n<|assistant|>"


def test_template_that_always_prompts_has_frames() -> None:
    source = CHATML.replace("%END%", "<|end|>\n").replace("add_generation_prompt", "true")
    frames = ChatTemplate(source).frames
    assert frames.user.after + frames.generation_prompt == "<|end|>\n<|assistant|>"
    assert frames.user.after + frames.developer.before == "<|end|>\n<|system|>"
    assert frames.assistant.after + frames.user.before == "<|end|>\n<|user|>"


def test_tags_with_a_common_beginning_are_not_cut() -> None:
    """The reasoning that the prompt opens and the end of an empty one both begin with ``<``."""
    source = (
        "{% for m in messages %}{% if m.role == 'assistant' %}<bot>\n</think>\n"
        "{% else %}<{{ m.role }}>{% endif %}{{ m.content }}<end>{% endfor %}"
        "{% if add_generation_prompt %}<bot>\n<think>{% endif %}"
    )
    frames = ChatTemplate(source).frames
    assert frames.message_header == "<bot>\n"
    assert frames.generation_prompt == "<bot>\n<think>"
    assert frames.assistant.before == "<bot>\n</think>\n"


def test_results_after_calls_that_are_text_have_frames() -> None:
    """The template has no ``tool_calls``: the model's text has them."""
    results = ChatTemplate(CHATML.replace("%END%", "<|end|>\n")).frames.results
    assert (results.frame.before, results.frame.after) == ("<|tool|>", "<|end|>\n")
    assert results.separator == "<|end|>\n<|tool|>" and results.call_end == "<|end|>\n"


def test_results_after_calls_with_json_text_have_frames() -> None:
    source = CHATML.replace(
        "%END%", "{% for c in m.tool_calls or [] %}<call>{{ c.function.name + c.function.arguments }}"
        "</call>{% endfor %}<|end|>\n",
    )  # fmt: skip
    results = ChatTemplate(source).frames.results
    assert (results.frame.before, results.call_end) == ("<|tool|>", "<|end|>\n")


@pytest.mark.parametrize(
    ("following", "instead"),
    [
        ("Hello", "<think></think>\n"),
        ("\nHello", "<think></think>"),
        ("> Hello", "<think></think>\n"),
        ("<call>f", "<think></think>\n\n"),
        ("\n<call>f", "<think></think>\n"),
        ('"', "<think></think>\n"),
    ],
)
def test_markup_in_place_of_reasoning_is_not_repeated(following: str, instead: str) -> None:
    opening = Opening("", "", "<think></think>\n", "<think></think>\n\n<call>")
    assert opening.instead_of_reasoning(following) == instead


def test_template_whose_generation_prompt_contradicts_history_is_unusable() -> None:
    source = CHATML.replace("%END%", "<|end|>{{ '!' if add_generation_prompt else '' }}")
    with pytest.raises(UnusableTemplateError, match="depends on others"):
        ChatTemplate(source)


# --- reasoning effort -------------------------------------------------------------------------------

PROMPT = CHATML.replace("%END%", "<|end|>").removesuffix("{% endif %}")
EFFORTS = {
    "levels": ("{{ reasoning_effort }}" + PROMPT + "{% endif %}", "low", "medium", "high"),
    "two levels": (
        "{% if thinking_effort not in ['low', 'high'] %}{{ raise_exception('no') }}{% endif %}"
        "{{ thinking_effort }}" + PROMPT + "{% endif %}",
        *("low", "high", "high"),
    ),
    "budget": ("{{ thinking_budget }}" + PROMPT + "{% endif %}", "512", "4096", "-1"),
    "switch": (
        PROMPT + "{% if enable_thinking is defined and enable_thinking is false %}"
        "<think></think>{% endif %}{% endif %}",
        *("<|assistant|><think></think>", "<|assistant|>", "<|assistant|>"),
    ),
    "other switch": (
        PROMPT + "{{ '<think>' if thinking else '</think>' }}{% endif %}",
        *("<|assistant|></think>", "<|assistant|><think>", "<|assistant|><think>"),
    ),
    "none as a level": (
        PROMPT + "{{ '</think>' if reasoning_effort == 'none' else '<think>' }}{% endif %}",
        *("<|assistant|></think>", "<|assistant|><think>", "<|assistant|><think>"),
    ),
}


@pytest.mark.parametrize("name", EFFORTS)
def test_effort_reaches_template(name: str) -> None:
    source, *expected = EFFORTS[name]
    template = ChatTemplate(source, KnownTemplate(source))
    assert template.effort_control
    form = MarkupFormat(SYNTAXES["plain"], ByteVocabulary(()), template)
    for effort, text in zip(EFFORT_LEVELS, expected, strict=True):
        each = form.with_effort(effort)
        assert each is form.with_effort(effort) and each.grammars is form.grammars
        header = each.prompt_header(PromptHeader("2026-11-21", effort=effort))
        prompt = bytes([*header, *each.open_assistant()]).decode()
        assert prompt == (text if text.startswith("<") else f"{text}<|assistant|>")


def test_template_without_variables_has_no_effort() -> None:
    template = ChatTemplate(TEMPLATES["qwen3"])
    assert not template.effort_control
    assert template.opening("low") == template.opening("high")


NO_EFFORT = {
    *("Apriel-1.6-15b-Thinker-fixed", "CohereForAI-c4ai-command-r-plus-tool_use"),
    *("GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "Kimi-K2-Instruct", "Kimi-K2-Thinking"),
    *("LFM2-8B-A1B", "LFM2.5-8B-A1B", "LFM2.5-Instruct", "MiMo-VL", "MiniMax-M1", "MiniMax-M2"),
    *("Mistral-Small-3.2-24B-Instruct-2506", "NVIDIA-Nemotron-Nano-v2"),
    *("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "Qwen-Qwen2.5-7B-Instruct"),
    *("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Qwen3-Coder", "StepFun3.5-Flash"),
    *("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "fireworks-ai-llama-3-firefunction-v2"),
    *("google-gemma-2-2b-it", "ibm-granite-granite-4.0", "ibm-granite-granite-4.1"),
    *("llama-cpp-deepseek-r1", "meetkai-functionary-medium-v3.1"),
    *("meetkai-functionary-medium-v3.2", "meta-llama-Llama-3.1-8B-Instruct"),
    *("meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct"),
    *("microsoft-Phi-3.5-mini-instruct", "mistralai-Ministral-3-14B-Reasoning-2512"),
    *("mistralai-Mistral-Nemo-Instruct-2407", "moonshotai-Kimi-K2", "unsloth-Apriel-1.5"),
    "unsloth-mistral-Devstral-Small-2507",
}
"""Real templates that read no variable for reasoning."""


@pytest.mark.parametrize("name", SOURCES)
def test_real_template_has_effort(name: str) -> None:
    template = ChatTemplate(SOURCES[name], KnownTemplate(SOURCES[name]), begin="<bos>", end="<eos>")
    assert template.effort_control is (name not in NO_EFFORT)
